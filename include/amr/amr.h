/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libamr: asynchronous RDMA memory registration.
 *
 * Made by cbindgen from src/ffi; do not edit. See amr(7).
 */

#ifndef AMR_H
#define AMR_H

#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>
/* One number for comparisons: major * 1000000 + minor * 1000 + patch. */
#define AMR_VERSION_NUMBER \
    (AMR_VERSION_MAJOR * 1000000 + AMR_VERSION_MINOR * 1000 + AMR_VERSION_PATCH)

/* Opaque handles. */
struct amr_engine;
struct amr_cq;

/**
 * Major version of this header.
 */
#define AMR_VERSION_MAJOR 0

/**
 * Minor version of this header.
 */
#define AMR_VERSION_MINOR 1

/**
 * Patch level of this header.
 */
#define AMR_VERSION_PATCH 0

/**
 * Most workers that an engine can have.
 */
#define AMR_MAX_WORKERS 64

/**
 * Deepest submission queue that an engine can have.
 */
#define AMR_MAX_QUEUE_DEPTH 1048576

/**
 * Leave it to the verbs call to fault buffers in.
 */
#define AMR_ENGINE_NO_PREFAULT 1

/**
 * Treat each registration as with AMR_WR_HUGEPAGE.
 */
#define AMR_ENGINE_HUGEPAGE 2

/**
 * Largest capacity of a completion queue.
 */
#define AMR_MAX_CQ_CAPACITY 1048576

/**
 * Nothing was found out beyond the status.
 */
#define AMR_DIAG_NONE 0

/**
 * The limit on locked memory (RLIMIT_MEMLOCK); diag_arg is the length asked for.
 */
#define AMR_DIAG_MEMLOCK 1

/**
 * Probably the device has no key left: no other limit that can be read explains
 * ENOMEM; diag_arg is max_mr.
 */
#define AMR_DIAG_MAX_MR 2

/**
 * Longer than one region of the device can be (max_mr_size); diag_arg is max_mr_size.
 */
#define AMR_DIAG_MAX_MR_SIZE 3

/**
 * The process has as many mappings as vm.max_map_count allows; diag_arg is that limit.
 */
#define AMR_DIAG_MAX_MAP_COUNT 4

/**
 * The kernel cannot pin the range, and what is mapped there does not tell why (or
 * was mapped only after the failure); diag_arg is the length asked for.
 */
#define AMR_DIAG_RANGE 5

/**
 * The device or its driver does not support this; diag_arg is the access asked for.
 */
#define AMR_DIAG_UNSUPPORTED 6

/**
 * A part of the range is not mapped; diag_arg is the first such address.
 */
#define AMR_DIAG_HOLE 7

/**
 * A page of the range cannot be read, or not be written and the access includes
 * writing; diag_arg is the address of the first one.
 */
#define AMR_DIAG_PROTECTION 8

/**
 * Memory of a device, of the kernel, or of a file that the kernel does not let a
 * device write to; diag_arg is the first such address.
 */
#define AMR_DIAG_UNPINNABLE 9

/**
 * The range has a part of a huge page of hugetlbfs, which the fork support of
 * libibverbs cannot split (ibv_fork_init(3)); diag_arg is the size of the page.
 */
#define AMR_DIAG_HUGEPAGE 10

/**
 * No permission, and it is not the limit on locked memory; diag_arg is 0.
 */
#define AMR_DIAG_PERMISSION 11

/**
 * The device does not answer any more; diag_arg is 0.
 */
#define AMR_DIAG_DEVICE_GONE 12

/**
 * Register a memory region: op.reg_mr.
 */
#define AMR_OP_REG_MR 1

/**
 * Deregister a memory region: op.dereg_mr.
 */
#define AMR_OP_DEREG_MR 2

/**
 * The iova of a registration is given; without this flag it is the address.
 */
#define AMR_WR_IOVA 1

/**
 * AMR_OP_REG_MR: ask for huge pages in the part of the buffer that is aligned to
 * their size, before it is faulted in: madvise(MADV_HUGEPAGE), which stays in
 * force after the registration.
 */
#define AMR_WR_HUGEPAGE 2

/**
 * AMR_OP_REG_MR: leave it to the verbs call to fault the buffer in.
 */
#define AMR_WR_NO_PREFAULT 4

/**
 * Before all that is not urgent: a small request before other small ones, a
 * large one before the slices of other large ones.
 */
#define AMR_WR_URGENT 8

/**
 * Called once when a request is over.
 *
 * `mr` is the registered region; NULL when a registration failed or a
 * deregistration succeeded; the region, still alive and the caller's, when a
 * deregistration failed. `status` is 0 or a positive errno value. `ctx` is what
 * was given at submit.
 *
 * Runs on a worker thread of the engine with all signals blocked, no lock of
 * the library held, and never inside the submitting call. It may call anything
 * of libamr but what would wait for itself: amr_destroy_engine(), amr_drain()
 * and amr_wait_cq() on its own engine answer EDEADLK. It must not throw,
 * longjmp() or end its thread. A worker that is in a callback serves no other
 * request. A worker's stack has 256 KiB. A callback may fork(); if it returns in
 * the child, that thread ends there, and with it the child if it has no other:
 * one that has used libamr ends by _exit() or exit() only.
 */
typedef void (*amr_callback)(struct ibv_mr *mr, int status, void *ctx);

/**
 * How an engine is made. Set `size` to sizeof(struct amr_engine_attr) and the
 * rest to zero but for what is wanted otherwise.
 */
struct amr_engine_attr {
    /**
     * sizeof(struct amr_engine_attr) of the caller.
     */
    size_t size;
    /**
     * Worker threads, 1 to AMR_MAX_WORKERS; 0: AMR_WORKERS or the number of
     * CPUs that the process could use when the library was loaded, at most 8.
     */
    uint32_t workers;
    /**
     * Requests that can wait for a worker, 1 to AMR_MAX_QUEUE_DEPTH, rounded
     * up to a power of two; 0: AMR_QUEUE_DEPTH or 16384. As many of each of the
     * four kinds: small or large (2 MiB and more), urgent or not.
     */
    uint32_t queue_depth;
    /**
     * CPUs of the workers as a list like "0-3,8"; NULL: AMR_CPUS, or those that
     * the process could use when the library was loaded, wherever its threads are
     * bound now. Not kept.
     */
    const char *cpus;
    /**
     * AMR_ENGINE_* bits; what they leave open comes from AMR_PREFAULT and
     * AMR_HUGEPAGE.
     */
    uint32_t flags;
    /**
     * Zero.
     */
    uint32_t reserved;
};

/**
 * A work completion: what became of one request.
 *
 * 64 bytes, for good.
 */
struct amr_wc {
    /**
     * The wr_id of the request.
     */
    uint64_t wr_id;
    /**
     * The opcode of the request, AMR_OP_*.
     */
    uint32_t opcode;
    /**
     * 0 or the positive errno value of the verbs call; ECANCELED after
     * amr_cancel(); EIO where the call failed and left no errno.
     */
    int32_t status;
    /**
     * What the library found out about a failure, AMR_DIAG_*.
     */
    uint32_t diag;
    /**
     * Zero.
     */
    uint32_t reserved0;
    /**
     * AMR_OP_REG_MR: the region, which is the caller's from here on; NULL
     * after a failure. AMR_OP_DEREG_MR: NULL; after a failure the region,
     * which is alive and the caller's again.
     */
    struct ibv_mr *mr;
    /**
     * Nanoseconds that the request waited, until a worker took it or it was
     * cancelled; if it was tried again after EAGAIN or EINTR, until the last
     * attempt.
     */
    uint64_t queued_ns;
    /**
     * Nanoseconds that workers were busy with it, in the last attempt.
     */
    uint64_t busy_ns;
    /**
     * A number that belongs to diag.
     */
    uint64_t diag_arg;
    /**
     * Of these: until the memory was faulted in; 0 where that was not done. The
     * rest was the verbs call.
     */
    uint64_t populate_ns;
};

/**
 * AMR_OP_REG_MR: what ibv_reg_mr() takes.
 */
struct amr_reg_mr {
    /**
     * The protection domain.
     */
    struct ibv_pd *pd;
    /**
     * Start of the buffer.
     */
    void *addr;
    /**
     * Length in bytes.
     */
    size_t length;
    /**
     * With AMR_WR_IOVA: the address that the device will know the buffer by;
     * its offset in the page is that of addr. Else zero.
     */
    uint64_t iova;
    /**
     * IBV_ACCESS_* bits; they reach the device as they are.
     */
    uint32_t access;
    /**
     * Zero.
     */
    uint32_t reserved;
};

/**
 * AMR_OP_DEREG_MR: what ibv_dereg_mr() takes.
 */
struct amr_dereg_mr {
    /**
     * The region; the library's until the completion.
     */
    struct ibv_mr *mr;
};

/**
 * The operand of a work request, chosen by its opcode.
 */
union amr_op {
    /**
     * What the opcode does not use must be zero. It stands first and is as
     * large as the union, so that "= {0}" clears all of it in every compiler.
     */
    uint64_t reserved[14];
    /**
     * AMR_OP_REG_MR
     */
    struct amr_reg_mr reg_mr;
    /**
     * AMR_OP_DEREG_MR
     */
    struct amr_dereg_mr dereg_mr;
};

/**
 * A work request.
 *
 * 128 bytes, for good. Set all of it to zero first.
 */
struct amr_wr {
    /**
     * Comes back in the completion; any value.
     */
    uint64_t wr_id;
    /**
     * AMR_OP_*
     */
    uint32_t opcode;
    /**
     * AMR_WR_* bits
     */
    uint32_t flags;
    /**
     * The operand.
     */
    union amr_op op;
};

/**
 * Called once when a request of amr_post_callback() is over.
 *
 * `wc` is the completion, which is not there any more once this returns. Its
 * wr_id can be a pointer to whatever the application knows of the request. Its
 * busy_ns ends with this call, whose own time is counted by amr_query_stats()
 * only. As for amr_callback: runs on a worker thread of the engine with all
 * signals blocked, no lock of the library held, and never inside the
 * submitting call; must not throw, longjmp() or end its thread.
 */
typedef void (*amr_wc_callback)(const struct amr_wc *wc);

/**
 * Limits on memory registration. Set `size` to sizeof(struct amr_limits).
 *
 * Sizes are in bytes; UINT64_MAX means no limit.
 */
struct amr_limits {
    /**
     * sizeof(struct amr_limits) of the caller.
     */
    size_t size;
    /**
     * RLIMIT_MEMLOCK, the soft limit, which counts (getrlimit(2)).
     */
    uint64_t memlock_soft;
    /**
     * RLIMIT_MEMLOCK, the hard limit, up to which the process may raise it.
     */
    uint64_t memlock_hard;
    /**
     * Memory that is pinned by registrations now: VmPin of /proc/self/status,
     * where each region counts its pages once, for each device.
     */
    uint64_t pinned;
    /**
     * Memory locked by mlock(2) now: VmLck of /proc/self/status.
     */
    uint64_t locked;
    /**
     * Mappings that the process has: lines of /proc/self/maps.
     */
    uint64_t map_count;
    /**
     * vm.max_map_count: mappings that it may have.
     */
    uint64_t max_map_count;
    /**
     * max_mr_size of the device; 0 if no device was given.
     */
    uint64_t max_mr_size;
    /**
     * max_mr of the device; 0 if no device was given.
     */
    uint64_t max_mr;
    /**
     * 1 if the process has CAP_IPC_LOCK in the initial user namespace, so that
     * RLIMIT_MEMLOCK does not bind it.
     */
    uint32_t cap_ipc_lock;
    /**
     * Size of a page.
     */
    uint32_t page_size;
};

/**
 * What an engine has done and is doing. Set `size` to sizeof(struct amr_stats).
 *
 * submitted = completed + queued + running while the engine is at rest (while
 * it works, the numbers are read one after another).
 */
struct amr_stats {
    /**
     * sizeof(struct amr_stats) of the caller.
     */
    size_t size;
    /**
     * Requests taken.
     */
    uint64_t submitted;
    /**
     * Requests completed, with whatever status.
     */
    uint64_t completed;
    /**
     * Of these: with a status that is neither 0 nor ECANCELED.
     */
    uint64_t failed;
    /**
     * Of these: with ECANCELED.
     */
    uint64_t cancelled;
    /**
     * Requests waiting for a worker now, those between two attempts included.
     */
    uint64_t queued;
    /**
     * Requests that a worker is busy with now.
     */
    uint64_t running;
    /**
     * Bytes registered by this engine, less those deregistered by it; wraps
     * below zero if it deregisters more than it registered.
     */
    uint64_t registered_bytes;
    /**
     * Sum of the queued_ns of all completed requests.
     */
    uint64_t queue_ns_total;
    /**
     * The longest of them.
     */
    uint64_t queue_ns_max;
    /**
     * Sum of the busy_ns of all completed requests; the time of a callback
     * is a part of its request's.
     */
    uint64_t busy_ns_total;
    /**
     * The longest of them.
     */
    uint64_t busy_ns_max;
    /**
     * Worker threads.
     */
    uint32_t workers;
    /**
     * Requests that can wait for a worker, of each of the four kinds: small or
     * large (2 MiB and more), urgent or not.
     */
    uint32_t queue_depth;
    /**
     * Sum of the populate_ns of all completed requests, which are a part of
     * their busy_ns.
     */
    uint64_t populate_ns_total;
    /**
     * The longest of them.
     */
    uint64_t populate_ns_max;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Version of the library that is loaded, as "major.minor.patch".
 *
 * The string is static. Never fails. Any thread, also in a forked child.
 */
const char *amr_version(void);

/**
 * Register memory on the default engine; `callback` gets the region.
 *
 * Returns at once; a worker thread performs ibv_reg_mr(pd, addr, length,
 * flags). `flags` are IBV_ACCESS_* bits and reach the device as they are.
 *
 * The buffer must stay mapped and the PD open until the callback is called;
 * the region then belongs to the caller, who deregisters it with
 * amr_deregister_async() or ibv_dereg_mr(). amr_drain() waits until the
 * callbacks of a PD have returned.
 *
 * Returns 0, and the callback will be called exactly once; or an errno value,
 * and nothing has happened: EINVAL (NULL pd or callback; length 0; addr NULL,
 * but for the implicit on-demand form NULL with SIZE_MAX and
 * IBV_ACCESS_ON_DEMAND; addr + length overflows; IBV_ACCESS_REMOTE_WRITE or
 * IBV_ACCESS_REMOTE_ATOMIC without IBV_ACCESS_LOCAL_WRITE), EAGAIN (the queue
 * is full: try again; or a thread of the default engine could not be made),
 * ENOMEM, ESHUTDOWN (the process is exiting), EIO (a fault inside the library).
 *
 * Any thread, a callback included; not a signal handler. In a forked child
 * the default engine starts anew.
 */
int amr_register_async(struct ibv_pd *pd,
                       void *addr,
                       size_t length,
                       int flags,
                       amr_callback callback,
                       void *ctx);

/**
 * Deregister a region on the default engine; `callback` hears how it went.
 *
 * Returns at once; a worker thread performs ibv_dereg_mr(mr). The region
 * belongs to the library until the callback is called. After a success it is
 * gone (`mr` is NULL in the callback); after a failure it is alive and the
 * caller's again.
 *
 * The region may come from any registration, also a plain ibv_reg_mr().
 *
 * Returns 0, and the callback will be called exactly once; or an errno value,
 * and nothing has happened: EINVAL (NULL or misaligned mr, NULL callback),
 * EALREADY (a deregistration of this region is queued or running, on whichever
 * engine), EAGAIN, ENOMEM, ESHUTDOWN and EIO as for amr_register_async().
 *
 * Any thread, a callback included; not a signal handler.
 */
int amr_deregister_async(struct ibv_mr *mr, amr_callback callback, void *ctx);

/**
 * Create an engine: a pool of worker threads with a submission queue.
 *
 * It serves any PD of any device. `attr` NULL means all defaults. The threads
 * are started before this returns; they are named "amr-…", block all signals,
 * and the caller's signal mask and affinity stay as they were.
 *
 * Ends with amr_destroy_engine(). Returns NULL and sets errno: EINVAL (a value
 * out of its range, an unknown flag, a CPU list that cannot be read or names no CPU that the
 * process may use, attr->size 0 or no multiple of sizeof(size_t)), E2BIG (attr is larger than this
 * library knows and its tail is not zero, or attr->size is above 4096: it was
 * not set), EAGAIN (a thread could not be made;
 * nothing is left behind), ENOMEM, ESHUTDOWN (the process is exiting), EIO (a
 * fault inside the library).
 *
 * Any thread.
 */
struct amr_engine *amr_create_engine(const struct amr_engine_attr *attr);

/**
 * Destroy an engine: its threads are joined.
 *
 * Its completion queues must be destroyed first, so nothing of theirs is
 * queued or running on it any more. Requests of amr_post_callback() that are
 * queued complete with ECANCELED, running ones as they do, before this
 * returns. On an error the engine is unharmed.
 *
 * Returns 0, or EINVAL (NULL, or the default engine, which lives as long as
 * the process), EBUSY (completion queues of the engine are alive), EDEADLK
 * (called in a callback of this engine), EPERM (the engine was made before
 * fork()), EIO.
 *
 * Any thread; the engine must not be used by another thread meanwhile.
 */
int amr_destroy_engine(struct amr_engine *engine);

/**
 * The process-wide engine, made on first use.
 *
 * The environment configures it: AMR_WORKERS (1 to 64), AMR_QUEUE_DEPTH (1 to
 * 1048576), AMR_CPUS (a list like "0-3,8"), AMR_PREFAULT (0: leave it to the
 * verbs call to fault buffers in) and AMR_HUGEPAGE (1: treat each registration as
 * with AMR_WR_HUGEPAGE). A bad value gives one line on
 * standard error and the default. It lives as long as the process and cannot
 * be destroyed. A forked child gets a new one.
 *
 * Returns NULL and sets errno: EAGAIN (a thread could not be made), ENOMEM,
 * ESHUTDOWN (the process is exiting), EIO; a later call tries again. Any thread.
 */
struct amr_engine *amr_default_engine(void);

/**
 * Wait until nothing is queued or running on a PD.
 *
 * Of requests submitted before the call none is left when it returns 0: the
 * verbs calls are done, the completions can be read, the callbacks have
 * returned. Then ibv_dealloc_pd() finds no request of libamr on the PD.
 * Requests that other threads go on submitting make it wait longer.
 *
 * `engine` NULL: the default engine. `pd` NULL: every PD. `timeout_ms` -1: no
 * limit; 0: only look.
 *
 * Returns 0, or ETIMEDOUT, EDEADLK (called in a callback of this engine),
 * EPERM (the engine was made before fork()), EINVAL (timeout_ms below -1),
 * ESHUTDOWN (the process is exiting; requests that are queued stay so), EIO;
 * with engine NULL also what amr_default_engine() gives.
 *
 * Any thread.
 */
int amr_drain(struct amr_engine *engine, struct ibv_pd *pd, int timeout_ms);

/**
 * Create a completion queue with a pollable file descriptor.
 *
 * `capacity` completions at most (1 to AMR_MAX_CQ_CAPACITY) are unread or
 * still to come at a time: each posted request holds a place from submit until
 * it is polled, so that no completion is ever dropped. `engine` NULL: the
 * default engine.
 *
 * Ends with amr_destroy_cq(), before its engine. Returns NULL and sets errno:
 * EINVAL (capacity), EMFILE or ENFILE (no file descriptor left), ENOMEM, EPERM
 * (the engine was made before fork()), ESHUTDOWN (the process is exiting),
 * EIO; with engine NULL also what amr_default_engine() gives.
 *
 * Any thread.
 */
struct amr_cq *amr_create_cq(struct amr_engine *engine, uint32_t capacity);

/**
 * The file descriptor of a completion queue.
 *
 * Readable (POLLIN) exactly while at least one completion is unread:
 * level-triggered, with no arming step, so poll(), select(), epoll (EPOLLET
 * too, if the queue is then polled until it is empty), libuv, Asio and GLib
 * work. It is non-blocking and close-on-exec. Only wait on it: never read,
 * write or close it, nor change its flags. It lives until amr_destroy_cq().
 *
 * A queue whose descriptor was never asked for and never waited on costs no
 * system call for each completion.
 *
 * Returns the descriptor, or a negative errno value: -EINVAL (NULL), -EPERM
 * (the queue was made before fork()), -EIO. Any thread.
 */
int amr_cq_fd(struct amr_cq *cq);

/**
 * Read completions, oldest first, without waiting.
 *
 * Writes at most `num_entries` to `wc`. Several threads may poll: each
 * completion goes to one of them, so a thread that was woken by the file
 * descriptor may find that another has read it.
 *
 * Returns how many were written, 0 if none is there, or a negative errno
 * value: -EINVAL (NULL, num_entries below 1), -EPERM (the queue was made
 * before fork()), -EIO. Any thread, a callback included.
 */
int amr_poll_cq(struct amr_cq *cq, int num_entries, struct amr_wc *wc);

/**
 * Read completions; wait for the first if none is there.
 *
 * Like amr_poll_cq(), but waits up to `timeout_ms` (-1: no limit; 0: like
 * amr_poll_cq()) until at least one can be read. A signal handler that runs
 * meanwhile does not end the wait.
 *
 * Returns how many were written, 0 after the time is over, or a negative errno
 * value: -EINVAL (NULL, num_entries below 1, timeout_ms below -1), -EDEADLK
 * (called in a callback of the same engine), -ESHUTDOWN (the process is
 * exiting, and no completion will come), -EPERM (the queue was made before
 * fork()), -EIO. Any thread.
 */
int amr_wait_cq(struct amr_cq *cq, int num_entries, struct amr_wc *wc, int timeout_ms);

/**
 * Destroy a completion queue.
 *
 * Unread completions are dropped; the regions of unread successful
 * registrations are deregistered, in this call, since nobody else knows them.
 *
 * Returns 0, or EBUSY (requests of this queue are queued or running: cancel or
 * drain them), EINVAL (NULL), EPERM (the queue was made before fork()), EIO.
 * On an error the queue is unharmed.
 *
 * Any thread; the queue must not be used by another thread meanwhile, and its
 * file descriptor be taken out of every poll set before.
 */
int amr_destroy_cq(struct amr_cq *cq);

/**
 * Post work requests: one or many in one call.
 *
 * Takes the `count` requests of `wr` in order until one is refused; writes
 * how many were taken to `posted` (if it is not NULL), and returns why the
 * next one was refused. `wr` is read in the call and not kept. Each request
 * that was taken completes exactly once on `cq`; requests run on several
 * workers, so completions come in any order.
 *
 * The buffer of a registration must stay mapped and its PD open until the
 * completion; the region is the caller's from then on. The region of a
 * deregistration is the library's until the completion.
 *
 * Returns 0 (all were taken), or an errno value: EAGAIN (the engine's queue is
 * full, maybe of the requests of others, or all places of the completion queue
 * are taken: wait a little for completions and post the rest again), EINVAL
 * (NULL cq, or NULL or misaligned wr with count above 0, or a count that no
 * memory can hold; unknown opcode or flag; reserved bytes not zero; iova without
 * AMR_WR_IOVA; for AMR_OP_REG_MR a NULL pd, length 0, addr NULL, but for the
 * implicit on-demand form NULL with SIZE_MAX and IBV_ACCESS_ON_DEMAND,
 * addr + length overflows, IBV_ACCESS_REMOTE_WRITE or IBV_ACCESS_REMOTE_ATOMIC without
 * IBV_ACCESS_LOCAL_WRITE, an iova whose offset in the page is not that of addr;
 * for AMR_OP_DEREG_MR a NULL or misaligned mr), EALREADY (a deregistration of this
 * region is queued or running, on whichever engine), EPERM (the queue was made before fork()),
 * ESHUTDOWN (the process is exiting), EIO.
 *
 * Any thread, a callback included; not a signal handler.
 */
int amr_post(struct amr_cq *cq, const struct amr_wr *wr, size_t count, size_t *posted);

/**
 * Post work requests whose completions are handed to a function.
 *
 * Like amr_post(), but on an engine (NULL: the default one), and instead of a
 * completion queue `callback` gets each completion, on a worker thread. There
 * is nothing to poll, nothing to destroy before the engine, and no limit but
 * that of the engine's queue. The requests cannot be cancelled one by one:
 * amr_destroy_engine() completes those that are still queued with ECANCELED.
 *
 * Takes the `count` requests of `wr` in order until one is refused; writes
 * how many were taken to `posted` (if it is not NULL), and returns why the
 * next one was refused. `wr` is read in the call and not kept. The callback
 * is called exactly once for each request that was taken, maybe before this
 * returns.
 *
 * The buffer of a registration must stay mapped and its PD open until the
 * callback is called; the region is the caller's from then on. The region of a
 * deregistration is the library's until the callback is called.
 *
 * Returns 0 (all were taken), or an errno value: EAGAIN (the engine's queue is
 * full: post the rest again a little later, but not from a callback, where all
 * workers may come to wait for one another; with engine NULL also: a thread
 * could not be made), EINVAL (NULL callback, or NULL or misaligned wr with
 * count above 0, or a count that no memory can hold, or a request that
 * amr_post() refuses so), EALREADY (a deregistration of this region is queued or
 * running, on whichever engine), EPERM (the engine was made before fork()), ENOMEM
 * (engine NULL only), ESHUTDOWN (the process is exiting), EIO.
 *
 * Any thread, a callback included; not a signal handler.
 */
int amr_post_callback(struct amr_engine *engine,
                      const struct amr_wr *wr,
                      size_t count,
                      amr_wc_callback callback,
                      size_t *posted);

/**
 * Cancel a queued request.
 *
 * The oldest queued request of `cq` with this wr_id completes with ECANCELED,
 * before this returns; it holds its place in the engine's queue until a worker
 * comes by. A running request cannot be stopped and completes as it does.
 *
 * Returns 0, EALREADY (it is running), ENOENT (no request with this wr_id is
 * queued or running), EINVAL (NULL), EPERM (the queue was made before fork()),
 * EIO. Looks through the engine's queue: takes microseconds for each thousand
 * requests in it. Any thread, a callback included.
 */
int amr_cancel(struct amr_cq *cq, uint64_t wr_id);

/**
 * A short text for a status: 0 or an errno value.
 *
 * Says what the value means for a memory registration. The string is static.
 * Never fails; an unknown value gives "unknown error". Any thread, also in a
 * forked child.
 */
const char *amr_status_str(int status);

/**
 * Explain a completion: one sentence and its remedy.
 *
 * Writes at most `size` bytes to `buf`, always ended by a zero (if size is not
 * 0), in English. Names the limit that was met, with its value at the time of
 * this call, and how to raise it. A callback, which gets no completion, can
 * fill one with zeros, its opcode and its status.
 *
 * Returns the length of the whole text without the zero, like snprintf(3),
 * or a negative errno value: -EINVAL (NULL wc, or NULL buf with size above 0),
 * -EIO. Any thread, also in a forked child.
 */
int amr_explain(const struct amr_wc *wc, char *buf, size_t size);

/**
 * Read the limits on memory registration.
 *
 * `context` NULL: only those of the process. Fields that cannot be read are 0.
 * Of a larger struct than this library knows the tail is set to zero.
 *
 * Returns 0, EINVAL (NULL limits; limits->size 0 or no multiple of
 * sizeof(size_t)), E2BIG (limits->size above 4096: it was not set), EIO, or the
 * errno value of ibv_query_device(). Takes tens of microseconds and more in a
 * process with many mappings. Any thread, also in a forked child.
 */
int amr_query_limits(struct ibv_context *context, struct amr_limits *limits);

/**
 * Read what an engine has done and is doing.
 *
 * `engine` NULL: the default engine. Of a larger struct than this library
 * knows the tail is set to zero.
 *
 * Returns 0, EINVAL (NULL stats; stats->size 0 or no multiple of
 * sizeof(size_t)), E2BIG (stats->size above 4096: it was not set), EPERM (the
 * engine was made before fork()), EIO; with engine NULL also what
 * amr_default_engine() gives. Looks through the engine's queue. Any thread, a
 * callback included.
 */
int amr_query_stats(struct amr_engine *engine, struct amr_stats *stats);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* AMR_H */
