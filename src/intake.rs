//! From the caller's arguments to a request: the checks at submit.

use crate::core::bulk::SLICE;
use crate::core::request::{Delivery, Hints, Operation, Request, Words};
use crate::errno::{Errno, Result};
use crate::ffi::post::{
    AMR_OP_DEREG_MR, AMR_OP_REG_MR, AMR_WR_HUGEPAGE, AMR_WR_IOVA, AMR_WR_NO_PREFAULT,
    AMR_WR_URGENT, amr_wr,
};
use crate::os;
use crate::verbs::{access, ibv_mr, ibv_pd};
use libc::c_void;

/// Requests that are checked, and then put into the queue in one go.
const BATCH: usize = 64;

const REGISTRATION_FLAGS: u32 = AMR_WR_IOVA | AMR_WR_HUGEPAGE | AMR_WR_NO_PREFAULT | AMR_WR_URGENT;

/// A registration, if nothing is wrong that can be seen without the device.
pub fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: Option<u64>,
    access: u32,
    flags: u32,
) -> Result<Request> {
    let address = addr.expose_provenance() as u64;
    check_range(address, length as u64, access)?;
    check_access(access)?;
    let iova = iova.unwrap_or(address);
    if pd.is_null() || (iova ^ address) % os::page_size() != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Request {
        access,
        pd: pd.expose_provenance() as u64,
        address,
        length: length as u64,
        iova,
        hints: urgency(flags) | hints(length as u64, access, flags),
        ..blank(Operation::Register)
    })
}

/// A deregistration.
///
/// # Safety
/// `mr` is NULL or a live region.
pub unsafe fn deregister(mr: *mut ibv_mr, flags: u32) -> Result<Request> {
    if !mr.is_aligned() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: aligned; the caller gives NULL or a live region.
    let region = unsafe { mr.as_ref() }.ok_or(Errno::EINVAL)?;
    Ok(Request {
        pd: region.pd.expose_provenance() as u64,
        address: mr.expose_provenance() as u64,
        length: region.length as u64,
        hints: urgency(flags) | size(region.length as u64),
        iova: identity(region),
        ..blank(Operation::Deregister)
    })
}

/// A word that tells a region from all others. Its address alone would not do: the
/// allocator may give that to a new region before a worker has had the time to say
/// that the old one is gone, but drivers do not give it the old key as well. (Bits
/// of an address beyond the 48th, where there are any, give way to the key.)
fn identity(region: &ibv_mr) -> u64 {
    let address = std::ptr::from_ref(region).expose_provenance() as u64;
    let key = u64::from(region.lkey ^ region.lkey >> 16);
    address & ((1 << 48) - 1) | key << 48
}

/// Checks work requests until one is wrong, and submits those before it in
/// batches. `address` says whom to tell of a request; it is given the time.
///
/// # Safety
/// The operands name NULL or live objects, as the opcodes say.
pub unsafe fn work_requests(
    requests: &[amr_wr],
    address: impl Fn(Request, u64) -> Result<Request>,
    mut submit: impl FnMut(&[Words]) -> Result<()>,
) -> Result<()> {
    for chunk in requests.chunks(BATCH) {
        match chunk {
            // SAFETY: the caller vouches for the operands.
            [_] => unsafe { submit_chunk::<1>(chunk, &address, &mut submit) }?,
            // SAFETY: the same.
            _ => unsafe { submit_chunk::<BATCH>(chunk, &address, &mut submit) }?,
        }
    }
    Ok(())
}

/// The same for at most `N` work requests.
///
/// # Safety
/// As for [`work_requests`].
#[inline]
unsafe fn submit_chunk<const N: usize>(
    chunk: &[amr_wr],
    address: &impl Fn(Request, u64) -> Result<Request>,
    submit: &mut impl FnMut(&[Words]) -> Result<()>,
) -> Result<()> {
    let submitted = os::stamp_ns();
    let mut batch = [Words::default(); N];
    let mut valid = 0;
    let mut refused = Ok(());
    for wr in chunk {
        // SAFETY: the caller vouches for the operands.
        let request = unsafe { work_request(wr) };
        let tagged = request.map(|request| Request { tag: wr.wr_id, ..request });
        match tagged.and_then(|request| address(request, submitted)) {
            Ok(request) => {
                batch[valid] = request.encode();
                valid += 1;
            }
            Err(error) => {
                refused = Err(error);
                break;
            }
        }
    }
    submit(&batch[..valid])?;
    refused
}

/// What a work request asks for.
///
/// # Safety
/// Its operand names NULL or live objects, as its opcode says.
#[inline]
unsafe fn work_request(wr: &amr_wr) -> Result<Request> {
    // SAFETY: all of the union is numbers and pointers: any bytes are a value.
    let words = unsafe { wr.op.reserved };
    match wr.opcode {
        AMR_OP_REG_MR => {
            let [pd, addr, length, iova, access, rest @ ..] = words;
            let with_iova = wr.flags & AMR_WR_IOVA != 0;
            let access = u32::try_from(access).map_err(|_| Errno::EINVAL)?;
            let known = wr.flags & !REGISTRATION_FLAGS == 0 && (with_iova || iova == 0);
            if !known || rest.iter().fold(0, |all, word| all | word) != 0 {
                return Err(Errno::EINVAL);
            }
            register(
                pointer(pd),
                pointer(addr),
                usize::try_from(length).map_err(|_| Errno::EINVAL)?,
                with_iova.then_some(iova),
                access,
                wr.flags,
            )
        }
        AMR_OP_DEREG_MR => {
            let [mr, rest @ ..] = words;
            if wr.flags & !AMR_WR_URGENT != 0 || rest.iter().fold(0, |all, word| all | word) != 0 {
                return Err(Errno::EINVAL);
            }
            // SAFETY: the caller gives NULL or a live region.
            unsafe { deregister(pointer(mr), wr.flags) }
        }
        _ => Err(Errno::EINVAL),
    }
}

/// What a registration is to be treated to.
fn hints(length: u64, access: u32, flags: u32) -> Hints {
    if access & access::ON_DEMAND != 0 {
        // No page is pinned, so none need be there, and it does not take long.
        return Hints::NONE;
    }
    let populates = length >= SLICE && flags & AMR_WR_NO_PREFAULT == 0;
    let populate = if populates { Hints::POPULATE } else { Hints::NONE };
    let huge = if flags & AMR_WR_HUGEPAGE != 0 { Hints::HUGE } else { Hints::NONE };
    size(length) | populate | huge
}

fn size(length: u64) -> Hints {
    if length >= SLICE { Hints::BULK } else { Hints::NONE }
}

fn urgency(flags: u32) -> Hints {
    if flags & AMR_WR_URGENT != 0 { Hints::URGENT } else { Hints::NONE }
}

fn blank(operation: Operation) -> Request {
    Request {
        operation,
        delivery: Delivery::Callback,
        hints: Hints::NONE,
        attempts: 0,
        policy: 0,
        access: 0,
        owner: 0,
        tag: 0,
        pd: 0,
        address: 0,
        length: 0,
        iova: 0,
        submitted: 0,
    }
}

/// No bytes, no address or past the end of the address space; but NULL with
/// `SIZE_MAX` is the whole address space, on demand.
fn check_range(address: u64, length: u64, access: u32) -> Result<()> {
    if address == 0 {
        let implicit = length == usize::MAX as u64 && access & access::ON_DEMAND != 0;
        return if implicit { Ok(()) } else { Err(Errno::EINVAL) };
    }
    if length == 0 || address.checked_add(length).is_none() {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// A peer that may change the memory implies that the device may (ibv_reg_mr(3)).
fn check_access(access: u32) -> Result<()> {
    let remote = access & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
    if remote && access & access::LOCAL_WRITE == 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

fn pointer<T>(word: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(word as usize)
}
