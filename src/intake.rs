//! From the caller's arguments to a request: the checks at submit.

use crate::core::request::{Delivery, Operation, Request, WORDS};
use crate::errno::{Errno, Result};
use crate::ffi::post::{AMR_OP_DEREG_MR, AMR_OP_REG_MR, AMR_WR_IOVA, amr_wr};
use crate::os;
use crate::verbs::{access, ibv_mr, ibv_pd};
use libc::c_void;

/// Requests that are checked, and then put into the queue in one go.
const BATCH: usize = 64;

/// A registration, if nothing is wrong that can be seen without the device.
pub fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: Option<u64>,
    access: u32,
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
        ..blank(Operation::Register)
    })
}

/// A deregistration.
///
/// # Safety
/// `mr` is NULL or a live region.
pub unsafe fn deregister(mr: *mut ibv_mr) -> Result<Request> {
    // SAFETY: the caller gives NULL or a live region.
    let region = unsafe { mr.as_ref() }.ok_or(Errno::EINVAL)?;
    Ok(Request {
        pd: region.pd.expose_provenance() as u64,
        address: mr.expose_provenance() as u64,
        length: region.length as u64,
        ..blank(Operation::Deregister)
    })
}

/// Checks work requests until one is wrong, and submits those before it in
/// batches. `address` says whom to tell of a request.
///
/// # Safety
/// The operands name NULL or live objects, as the opcodes say.
pub unsafe fn work_requests(
    requests: &[amr_wr],
    address: impl Fn(Request) -> Request,
    mut submit: impl FnMut(&[[u64; WORDS]]) -> Result<()>,
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
    address: &impl Fn(Request) -> Request,
    submit: &mut impl FnMut(&[[u64; WORDS]]) -> Result<()>,
) -> Result<()> {
    let submitted = os::stamp_ns();
    let mut batch = [[0; WORDS]; N];
    let mut valid = 0;
    let mut refused = Ok(());
    for wr in chunk {
        // SAFETY: the caller vouches for the operands.
        match unsafe { work_request(wr) } {
            Ok(request) => {
                let request = Request { tag: wr.wr_id, submitted, ..request };
                batch[valid] = address(request).encode();
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
            let with_iova = wr.flags == AMR_WR_IOVA;
            let access = u32::try_from(access).map_err(|_| Errno::EINVAL)?;
            if !(with_iova || wr.flags == 0 && iova == 0)
                || rest.iter().fold(0, |all, word| all | word) != 0
            {
                return Err(Errno::EINVAL);
            }
            register(
                pointer(pd),
                pointer(addr),
                usize::try_from(length).map_err(|_| Errno::EINVAL)?,
                with_iova.then_some(iova),
                access,
            )
        }
        AMR_OP_DEREG_MR => {
            let [mr, rest @ ..] = words;
            if wr.flags != 0 || rest.iter().fold(0, |all, word| all | word) != 0 {
                return Err(Errno::EINVAL);
            }
            // SAFETY: the caller gives NULL or a live region.
            unsafe { deregister(pointer(mr)) }
        }
        _ => Err(Errno::EINVAL),
    }
}

fn blank(operation: Operation) -> Request {
    Request {
        operation,
        delivery: Delivery::Callback,
        attempts: 0,
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
