//! The few items of `<infiniband/verbs.h>` that libamr needs, declared by hand.
//!
//! `tests/bindings.rs` compares them with rdma-sys, and `c_tests/layout.c` with
//! the C header.

use libc::{c_char, c_int, c_uint, c_void, size_t};

/// `struct ibv_context`: an open device; libamr only passes it on.
#[repr(C)]
pub struct ibv_context {
    _opaque: [u8; 0],
}

/// `struct ibv_pd`: a protection domain.
#[repr(C)]
pub struct ibv_pd {
    /// The device that the PD was allocated on.
    pub context: *mut ibv_context,
    /// The kernel's handle.
    pub handle: u32,
}

/// `struct ibv_mr`: a registered memory region.
#[repr(C)]
pub struct ibv_mr {
    /// The device of the region.
    pub context: *mut ibv_context,
    /// The PD that it was registered on.
    pub pd: *mut ibv_pd,
    /// Start of the region.
    pub addr: *mut c_void,
    /// Length in bytes.
    pub length: size_t,
    /// The kernel's handle.
    pub handle: u32,
    /// Local key.
    pub lkey: u32,
    /// Remote key.
    pub rkey: u32,
}

/// `struct ibv_device_attr`: what a device can do.
#[repr(C)]
pub struct ibv_device_attr {
    /// Firmware version.
    pub fw_ver: [c_char; 64],
    /// Node GUID, in network byte order.
    pub node_guid: u64,
    /// System image GUID, in network byte order.
    pub sys_image_guid: u64,
    /// Longest memory region, in bytes.
    pub max_mr_size: u64,
    /// Supported page sizes, a bit for each shift.
    pub page_size_cap: u64,
    /// Vendor, as the IEEE knows it.
    pub vendor_id: u32,
    /// The vendor's part number.
    pub vendor_part_id: u32,
    /// Hardware version.
    pub hw_ver: u32,
    /// Highest number of QPs.
    pub max_qp: c_int,
    /// Most work requests on a queue.
    pub max_qp_wr: c_int,
    /// `IBV_DEVICE_*` bits.
    pub device_cap_flags: c_uint,
    /// Most scatter-gather entries of a work request.
    pub max_sge: c_int,
    /// The same for an RDMA READ.
    pub max_sge_rd: c_int,
    /// Highest number of CQs.
    pub max_cq: c_int,
    /// Most entries of a CQ.
    pub max_cqe: c_int,
    /// Highest number of MRs.
    pub max_mr: c_int,
    /// Highest number of PDs.
    pub max_pd: c_int,
    /// The rest is not read by libamr; it keeps its room.
    pub rest: [c_int; 20],
    /// Highest number of partitions.
    pub max_pkeys: u16,
    /// Local acknowledge delay.
    pub local_ca_ack_delay: u8,
    /// Number of physical ports.
    pub phys_port_cnt: u8,
}

// SAFETY: these are the prototypes of <infiniband/verbs.h>; all three symbols
// are exported by libibverbs since IBVERBS_1.8 (rdma-core 28).
unsafe extern "C" {
    /// Registers a region under an I/O virtual address of the caller's choice.
    pub fn ibv_reg_mr_iova2(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: size_t,
        iova: u64,
        access: c_uint,
    ) -> *mut ibv_mr;
    /// Deregisters a region; returns 0 or an errno value.
    pub fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    /// Reads what a device can do; returns 0 or an errno value.
    pub fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
}
