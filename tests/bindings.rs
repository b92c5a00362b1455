//! The declarations of src/verbs/builtin.rs against those of rdma-sys, item by item.
//!
//! Runs with `--features rdma-sys`, where that can be built; c_tests/layout.c
//! compares with the C header.

#![cfg(feature = "rdma-sys")]

#[path = "../src/verbs/builtin.rs"]
mod builtin;

use libc::{c_int, c_uint, c_void, size_t};
use rdma_sys as theirs;
use std::mem::{align_of, offset_of, size_of};

macro_rules! same_layout {
    ($name:ident { $($field:ident),* }) => {
        assert_eq!(size_of::<builtin::$name>(), size_of::<theirs::$name>(), stringify!($name));
        assert_eq!(align_of::<builtin::$name>(), align_of::<theirs::$name>(), stringify!($name));
        $(assert_eq!(
            (offset_of!(builtin::$name, $field), size_of_field(|s: &builtin::$name| &raw const s.$field)),
            (offset_of!(theirs::$name, $field), size_of_field(|s: &theirs::$name| &raw const s.$field)),
            concat!(stringify!($name), ".", stringify!($field))
        );)*
    };
}

fn size_of_field<S, F>(_: impl Fn(&S) -> *const F) -> usize {
    size_of::<F>()
}

#[test]
fn structures_are_laid_out_alike() {
    same_layout!(ibv_pd { context, handle });
    same_layout!(ibv_mr { context, pd, addr, length, handle, lkey, rkey });
    same_layout!(ibv_device_attr {
        fw_ver,
        node_guid,
        sys_image_guid,
        max_mr_size,
        page_size_cap,
        vendor_id,
        vendor_part_id,
        hw_ver,
        max_qp,
        max_qp_wr,
        device_cap_flags,
        max_sge,
        max_sge_rd,
        max_cq,
        max_cqe,
        max_mr,
        max_pd,
        max_pkeys,
        local_ca_ack_delay,
        phys_port_cnt
    });
}

/// A function of another type does not compile here.
#[test]
fn functions_have_the_same_signatures() {
    let _: [unsafe extern "C" fn(
        *mut theirs::ibv_pd,
        *mut c_void,
        size_t,
        u64,
        c_uint,
    ) -> *mut theirs::ibv_mr; 1] = [theirs::ibv_reg_mr_iova2];
    let _: [unsafe extern "C" fn(
        *mut builtin::ibv_pd,
        *mut c_void,
        size_t,
        u64,
        c_uint,
    ) -> *mut builtin::ibv_mr; 1] = [builtin::ibv_reg_mr_iova2];

    let _: [unsafe extern "C" fn(*mut theirs::ibv_mr) -> c_int; 1] = [theirs::ibv_dereg_mr];
    let _: [unsafe extern "C" fn(*mut builtin::ibv_mr) -> c_int; 1] = [builtin::ibv_dereg_mr];

    let _: [unsafe extern "C" fn(*mut theirs::ibv_context, *mut theirs::ibv_device_attr) -> c_int;
        1] = [theirs::ibv_query_device];
    let _: [unsafe extern "C" fn(*mut builtin::ibv_context, *mut builtin::ibv_device_attr) -> c_int;
        1] = [builtin::ibv_query_device];
}

#[test]
fn access_bits_are_the_same() {
    assert_eq!(
        [
            theirs::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0,
            theirs::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0,
            theirs::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0,
            theirs::ibv_access_flags::IBV_ACCESS_ON_DEMAND.0,
        ],
        [1, 1 << 1, 1 << 3, 1 << 6],
        "as in src/verbs/mod.rs"
    );
}
