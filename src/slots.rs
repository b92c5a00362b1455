//! The slots of the core's rings, in memory that is zero because the operating
//! system gave it so: it takes no room before it is used.

use crate::core::sync::atomic::AtomicU64;

/// One slot; all zero at first.
#[repr(C)]
pub struct Slot<const W: usize> {
    /// What the slot is, for the ring.
    pub state: AtomicU64,
    /// The record.
    pub words: [AtomicU64; W],
}

/// There is no memory left.
#[derive(Debug)]
pub struct OutOfMemory;

/// So many slots.
#[cfg(not(loom))]
pub fn allocate<const W: usize>(count: usize) -> Result<Box<[Slot<W>]>, OutOfMemory> {
    use std::alloc::{Layout, alloc_zeroed};

    let layout = Layout::array::<Slot<W>>(count).map_err(|_| OutOfMemory)?;
    if layout.size() == 0 {
        return Ok(Box::default());
    }
    // SAFETY: the size of the layout is not zero.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return Err(OutOfMemory);
    }
    let slots = std::ptr::slice_from_raw_parts_mut(memory.cast::<Slot<W>>(), count);
    // SAFETY: the memory comes from the allocator that boxes use, with the layout
    // of these `count` slots. All zero is a slot: an AtomicU64 has the
    // representation of a u64.
    Ok(unsafe { Box::from_raw(slots) })
}

/// loom's atomics are more than their words.
#[cfg(loom)]
pub fn allocate<const W: usize>(count: usize) -> Result<Box<[Slot<W>]>, OutOfMemory> {
    let words = || std::array::from_fn(|_| AtomicU64::new(0));
    Ok((0..count).map(|_| Slot { state: AtomicU64::new(0), words: words() }).collect())
}
