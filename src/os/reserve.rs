//! Memory: small allocations do not fail.
//!
//! Rust ends the process where an allocation fails that has no way to say so, and
//! the standard library has many such. Whoever asks for much asks by a way that can
//! fail (`try_reserve`); for the rest there is a reserve in this library, from which
//! small blocks are taken when the C library has none. What draws on it while an
//! engine or a queue is made fails in the end, and gives all back. A hundred threads
//! can do so at once; no lock makes them wait for one another, since none is held
//! where memory is asked for. Requests and lines of the log take no memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Larger than all that is allocated without a way to fail.
pub const BLOCK: usize = 4096;
const BLOCKS: usize = 1024;
const WORD_BITS: usize = u64::BITS as usize;

/// Pages that are not touched cost nothing.
#[repr(align(4096))]
struct Blocks(UnsafeCell<[[u8; BLOCK]; BLOCKS]>);

// SAFETY: each block belongs to who has taken its bit; see take() and give_back().
unsafe impl Sync for Blocks {}

static RESERVE: Blocks = Blocks(UnsafeCell::new([[0; BLOCK]; BLOCKS]));
/// A bit for each block that is taken.
static TAKEN: [AtomicU64; BLOCKS / WORD_BITS] = [const { AtomicU64::new(0) }; BLOCKS / WORD_BITS];
/// How often a block was taken.
static DRAWN: AtomicU64 = AtomicU64::new(0);

/// Where the reserve stood, to ask later whether memory ran out meanwhile.
#[derive(Clone, Copy)]
pub struct Memory(u64);

impl Memory {
    /// Now.
    pub fn now() -> Self {
        Self(DRAWN.load(Ordering::Relaxed))
    }

    /// Whether somebody had to draw on the reserve since.
    pub fn ran_out(self) -> bool {
        DRAWN.load(Ordering::Relaxed) != self.0
    }
}

fn first_block() -> *mut u8 {
    RESERVE.0.get().cast()
}

/// A block of the reserve that is large enough, or NULL.
fn take(layout: Layout) -> *mut u8 {
    if layout.size() > BLOCK || layout.align() > BLOCK {
        return std::ptr::null_mut();
    }
    let Some(block) = (0..TAKEN.len()).find_map(take_of_word) else {
        return std::ptr::null_mut();
    };
    DRAWN.fetch_add(1, Ordering::Relaxed);
    first_block().wrapping_add(block * BLOCK)
}

/// The number of a block whose bit is in that word, if one is free.
fn take_of_word(word: usize) -> Option<usize> {
    let with_one_more =
        |taken: u64| (taken != u64::MAX).then(|| taken | 1 << taken.trailing_ones());
    let before = TAKEN[word].fetch_update(Ordering::AcqRel, Ordering::Relaxed, with_one_more);
    before.ok().map(|before| word * WORD_BITS + before.trailing_ones() as usize)
}

/// The number of the block that begins there, if it is one.
fn block_of(pointer: *mut u8) -> Option<usize> {
    let distance = pointer.addr().wrapping_sub(first_block().addr());
    (distance < BLOCK * BLOCKS).then_some(distance / BLOCK)
}

/// The allocator of the library's Rust code.
struct Allocator;

// A test has the allocator of its own program.
#[cfg(not(any(test, loom, miri)))]
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: memory is that of the system's allocator or a block of the reserve, which
// is as large and as aligned as its layout asks, and nobody else's until it is given
// back.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let pointer = unsafe { System.alloc(layout) };
        if pointer.is_null() { take(layout) } else { pointer }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        if !pointer.is_null() {
            return pointer;
        }
        let block = take(layout);
        if !block.is_null() {
            // SAFETY: the block is ours and large enough.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        match block_of(pointer) {
            Some(block) => {
                TAKEN[block / WORD_BITS].fetch_and(!(1 << (block % WORD_BITS)), Ordering::AcqRel);
            }
            // SAFETY: the caller's promise; it came from the system.
            None => unsafe { System.dealloc(pointer, layout) },
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if block_of(pointer).is_none() {
            // SAFETY: the caller's promise; it came from the system.
            let moved = unsafe { System.realloc(pointer, layout, new_size) };
            if !moved.is_null() {
                return moved;
            }
        } else if new_size <= BLOCK {
            return pointer;
        }
        // SAFETY: the caller's promise: the alignment is one, and the size not too large.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: new_size is not zero, by the caller's promise.
        let moved = unsafe { self.alloc(new_layout) };
        if !moved.is_null() {
            let kept = layout.size().min(new_size);
            // SAFETY: both have so many bytes, and are not the same memory.
            unsafe { moved.copy_from_nonoverlapping(pointer, kept) };
            // SAFETY: the caller's promise.
            unsafe { self.dealloc(pointer, layout) };
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_lasts_and_comes_back() {
        let layout = Layout::from_size_align(3000, 128).unwrap();
        let before = Memory::now();
        let blocks: Vec<_> =
            std::iter::repeat_with(|| take(layout)).take_while(|block| !block.is_null()).collect();
        assert_eq!(blocks.len(), BLOCKS);
        assert!(before.ran_out());
        for (number, block) in blocks.iter().enumerate() {
            assert_eq!(block_of(*block), Some(number));
            assert_eq!(block.addr() % 128, 0);
        }
        for block in blocks {
            // SAFETY: it was taken with this layout.
            unsafe { Allocator.dealloc(block, layout) };
        }
        assert!(TAKEN.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        assert!(take(Layout::from_size_align(BLOCK + 1, 8).unwrap()).is_null());
    }

    #[test]
    fn blocks_grow_and_shrink() {
        let layout = Layout::from_size_align(16, 8).unwrap();
        let block = take(layout);
        // SAFETY: a block of its own.
        unsafe { block.write_bytes(7, 16) };
        // SAFETY: the block has this layout.
        let same = unsafe { Allocator.realloc(block, layout, BLOCK) };
        assert_eq!(same, block);
        let layout = Layout::from_size_align(BLOCK, 8).unwrap();
        // SAFETY: the block has this layout.
        let moved = unsafe { Allocator.realloc(same, layout, 2 * BLOCK) };
        assert_eq!(block_of(moved), None);
        // SAFETY: 16 bytes were written before it was moved.
        assert_eq!(unsafe { std::slice::from_raw_parts(moved, 16) }, [7; 16]);
        // SAFETY: it was made with this layout.
        unsafe { Allocator.dealloc(moved, Layout::from_size_align(2 * BLOCK, 8).unwrap()) };
    }
}
