/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the parts of the simulated device share. */
#ifndef AMR_SIM_INTERNAL_H
#define AMR_SIM_INTERNAL_H

#define SIM_IMPLEMENTATION
#include "sim.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* verbs.h turns these into inline wrappers; here the functions themselves are defined. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define SIM_EXPORT __attribute__((visibility("default")))
#define SIM_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define SIM_PAGE_SIZE 4096u
#define SIM_MAX_DEVICES 8
#define SIM_MAX_SGE 16
#define SIM_MAX_MESSAGE (1u << 30)

#define sim_container_of(pointer, type, member)                                                    \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* ---- Control (control.c) --------------------------------------------------------------------- */

/* Why a verbs call has to take the slow path. No bit set: the call is as fast as it can be. */
enum {
    SIM_FEATURE_RULES = 1 << 0,
    SIM_FEATURE_DELAY = 1 << 1,
    SIM_FEATURE_GATE = 1 << 2,
    SIM_FEATURE_RECORD = 1 << 3,
    SIM_FEATURE_PEAK = 1 << 4,
    SIM_FEATURE_CLOBBER = 1 << 5,
    SIM_FEATURE_MAX_MR = 1 << 6,
    SIM_FEATURE_EXITED = 1 << 7,
};

extern _Atomic uint32_t sim_features;

/* Settings that verbs calls read while a test may change them. */
struct sim_settings {
    _Atomic uint64_t pins;
    _Atomic uint64_t odp;
    _Atomic uint64_t gone;
    _Atomic uint64_t dmabuf;
    _Atomic uint64_t devices;
    _Atomic uint64_t busy;
    _Atomic uint64_t clobber;
    _Atomic uint64_t record;
    _Atomic uint64_t peak;
    _Atomic uint64_t max_mr; /* 0: not set */
    _Atomic uint64_t max_mr_size;
    _Atomic uint64_t reg_delay_us;
    _Atomic uint64_t dereg_delay_us;
    _Atomic uint64_t slow_len; /* 0: not set */
    _Atomic uint64_t slow_len_us;
    _Atomic uint64_t linger_ms;
};

extern struct sim_settings sim_settings;

static inline uint64_t sim_get(const _Atomic uint64_t *setting) {
    return atomic_load_explicit(setting, memory_order_relaxed);
}

/* A path, empty if none is set. Written only before main(). */
extern char sim_report_path[4096];

void sim_control_start(void);
void sim_feature_set(uint32_t feature, bool on);

/* One line on stderr, then the end. */
_Noreturn void sim_exit_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void sim_abort_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t sim_now_ns(void);

/* ---- Threads and their counters (thread.c) --------------------------------------------------- */

/* Counters have one writer, so that counting needs no locked instruction; readers add them up. */
enum sim_counter {
    SIM_COUNT_REG,
    SIM_COUNT_REG_FAILED,
    SIM_COUNT_REREG_DONE, /* these made no new region */
    SIM_COUNT_DEREG,
    SIM_COUNT_DEREG_FAILED,
    SIM_COUNT_RUNNING,
    SIM_COUNTERS,
};

struct sim_mr_list {
    struct sim_mr *head;
    struct sim_mr *tail;
    size_t count;
};

struct sim_thread {
    _Alignas(128) _Atomic uint64_t counters[SIM_COUNTERS];
    struct sim_mr_list spare; /* ready for use */
    struct sim_mr_list freed; /* in quarantine, oldest first */
    struct sim_thread *next;  /* all threads ever seen */
    struct sim_thread *next_idle;
};

extern __thread struct sim_thread *sim_thread_current __attribute__((tls_model("initial-exec")));

struct sim_thread *sim_thread_start(void);

static inline struct sim_thread *sim_thread_self(void) {
    struct sim_thread *self = sim_thread_current;
    return SIM_LIKELY(self != NULL) ? self : sim_thread_start();
}

static inline void sim_count(struct sim_thread *self, enum sim_counter counter, uint64_t add) {
    uint64_t value = atomic_load_explicit(&self->counters[counter], memory_order_relaxed);
    atomic_store_explicit(&self->counters[counter], value + add, memory_order_relaxed);
}

uint64_t sim_count_sum(enum sim_counter counter);
uint64_t sim_live_mrs(void);
void sim_count_restart(void);

/* Fork: the parent's other threads do not exist in the child. */
void sim_threads_lock(void);
void sim_threads_unlock(void);
void sim_threads_after_fork(void);

/* ---- The frame around a registration or deregistration (call.c) ------------------------------ */

enum { SIM_PROCEED = -1 };

struct sim_frame {
    struct sim_thread *self;
    enum sim_symbol symbol;
    uint32_t features; /* as they were at the beginning */
    bool reserved;     /* one of max_mr regions */
    uint64_t begin_ns;
};

static inline int sim_symbol_kind(enum sim_symbol symbol) {
    return symbol == SIM_IBV_DEREG_MR ? SIM_DEREG : SIM_REG;
}

static inline void sim_frame_begin(struct sim_frame *frame, enum sim_symbol symbol) {
    frame->self = sim_thread_self();
    frame->symbol = symbol;
    sim_count(frame->self, SIM_COUNT_RUNNING, 1);
    /* sim_mark_exit() has the processor-side counterpart of this compiler fence. */
    atomic_signal_fence(memory_order_seq_cst);
    frame->features = atomic_load_explicit(&sim_features, memory_order_relaxed);
}

/* Both are for calls with features only. The first returns SIM_PROCEED, or the errno value (0
 * included) that the call shall fail with. */
int sim_frame_enter(struct sim_frame *frame, const void *addr, size_t length);
void sim_frame_leave(const struct sim_frame *frame, struct sim_call *call);

static inline void sim_frame_end(const struct sim_frame *frame, bool succeeded) {
    bool ends = frame->symbol == SIM_IBV_DEREG_MR;

    sim_count(frame->self, ends ? SIM_COUNT_DEREG : SIM_COUNT_REG, 1);
    if (!succeeded)
        sim_count(frame->self, ends ? SIM_COUNT_DEREG_FAILED : SIM_COUNT_REG_FAILED, 1);
    else if (frame->symbol == SIM_IBV_REREG_MR)
        sim_count(frame->self, SIM_COUNT_REREG_DONE, 1);
    atomic_signal_fence(memory_order_seq_cst);
    sim_count(frame->self, SIM_COUNT_RUNNING, (uint64_t)-1);
}

uint64_t sim_peak_running(void);
void sim_peak_restart(void);
void sim_max_mr_restart(void);
void sim_calls_after_fork(void);

/* ---- Recording (record.c) -------------------------------------------------------------------- */

void sim_record_call(const struct sim_call *call);
void sim_record_restart(void);
void sim_record_lock(void);
void sim_record_unlock(void);

/* ---- Rules, ranges and the gate (rules.c) ---------------------------------------------------- */

struct sim_rule {
    int kind;       /* SIM_REG or SIM_DEREG */
    bool is_delay;  /* else it is a failure */
    uint64_t first; /* numbers of the calls it is for, from 1 */
    uint64_t last;
    uint64_t value; /* microseconds, or an errno value */
};

#define SIM_MAX_RULES 32

/* Adds rules, all or none. The numbering of the kinds in restart begins anew. */
bool sim_rules_add(const struct sim_rule *rules, size_t count, int restart);
void sim_rules_clear(void);
uint64_t sim_rules_next_number(int kind);
/* Adds up delays for a call, and finds its failure (SIM_PROCEED: none). */
int sim_rules_apply(int kind, uint64_t number, const void *addr, size_t length, uint64_t *delay_us);
void sim_gate_wait(int kind);
void sim_rules_lock(void);
void sim_rules_unlock(void);
void sim_rules_after_fork(void);

/* ---- Exit (exit.c) --------------------------------------------------------------------------- */

void sim_exit_late_call(void);
uint64_t sim_exit_late_calls(void);

/* ---- Devices, contexts, protection domains (device.c) ---------------------------------------- */

struct sim_device {
    struct ibv_device ibv;
    unsigned index;
    uint64_t guid;
};

struct sim_context {
    struct verbs_context verbs; /* ends with struct ibv_context */
    struct sim_device *device;
    atomic_uint pds;
};

struct sim_pd {
    struct ibv_pd ibv;
    atomic_uint qps;
};

/* Objects that are made and destroyed rarely. */
extern atomic_ullong sim_live_contexts;
extern atomic_ullong sim_live_pds;
extern atomic_ullong sim_live_cqs;
extern atomic_ullong sim_live_qps;

void sim_devices_start(void);

static inline struct sim_pd *sim_pd(struct ibv_pd *pd) {
    return sim_container_of(pd, struct sim_pd, ibv);
}

/* ---- Memory regions (mr.c, mr_pool.c) -------------------------------------------------------- */

struct sim_pin {
    struct sim_ring *ring; /* NULL: nothing is pinned */
    uint32_t slot;
    uint32_t slots;
    uint64_t bytes;
    uint64_t generation; /* of the process, see sim_pin_after_fork() */
};

/*
 * State of a memory region: what it is (upper half), whether a call that ends or changes it is
 * under way, and how many data transfers use it right now. Regions are never given back to the
 * allocator, so the state of a stale pointer can be read.
 */
enum {
    SIM_MR_KIND = 0x7fff0000,
    SIM_MR_LIVE = 0x4d520000,
    SIM_MR_DYING = 0x44590000,
    SIM_MR_FREE = 0x46520000,
    SIM_MR_CLAIMED = 0x8000,
    SIM_MR_USERS = 0x7fff,
};

struct sim_mr {
    _Alignas(128) struct ibv_mr ibv;
    _Atomic uint32_t state;
    uint32_t index; /* upper 24 bits of the keys */
    uint32_t access;
    uint8_t use;     /* lower 8 bits of the keys: differs from one use of the index to the next */
    bool has_memory; /* false: a dma-buf */
    uint64_t iova;
    struct sim_mr *next;
    struct sim_pin pin;
};

static inline struct sim_mr *sim_mr(struct ibv_mr *mr) {
    return sim_container_of(mr, struct sim_mr, ibv);
}

struct sim_mr *sim_mr_take(struct sim_thread *self);
void sim_mr_give(struct sim_thread *self, struct sim_mr *mr);
void sim_mr_publish(struct sim_mr *mr);
/* Claim: this call alone may now end or change the region; ends the process if it is not live. */
void sim_mr_claim(struct sim_mr *mr, const char *caller);
void sim_mr_unclaim(struct sim_mr *mr);
/* Ends a claimed region's use by data transfers and waits for those that are under way. */
void sim_mr_retire(struct sim_mr *mr);
/* Both in one. */
void sim_mr_claim_and_retire(struct sim_mr *mr, const char *caller);
/* Finds a live region by key and keeps it alive until released. */
struct sim_mr *sim_mr_acquire(uint32_t key);
void sim_mr_release(struct sim_mr *mr);
bool sim_mr_any_in(const struct ibv_pd *pd);
void sim_mr_pool_thread_end(struct sim_thread *self);
void sim_mr_pool_lock(void);
void sim_mr_pool_unlock(void);

int sim_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                  struct ibv_sge *sges, uint32_t count);

/* ---- Pinning (pin.c) ------------------------------------------------------------------------- */

/* Both return 0 or an errno value. */
int sim_pin(struct sim_pin *pin, const void *addr, size_t length, bool writable);
void sim_unpin(struct sim_pin *pin);
uint64_t sim_pinned_bytes(void);
void sim_pin_lock(void);
void sim_pin_unlock(void);
void sim_pin_after_fork(void);

/* ---- Completion queues (cq.c) ---------------------------------------------------------------- */

struct sim_cq;

void sim_cq_push(struct ibv_cq *cq, const struct ibv_wc *wc, bool solicited);
void sim_cq_attach_qp(struct ibv_cq *cq);
void sim_cq_detach_qp(struct ibv_cq *cq);
int sim_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int sim_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* ---- Queue pairs (qp.c) and their transport (transport.c, wire.c) ---------------------------- */

struct sim_send {
    struct sim_send *next;
    struct ibv_send_wr wr; /* sg_list points to sges below */
    struct ibv_sge sges[SIM_MAX_SGE];
    uint8_t *inline_data; /* owned; NULL if the data is not inline */
    uint64_t length;
};

struct sim_recv {
    struct sim_recv *next;
    uint64_t wr_id;
    int num_sge;
    struct ibv_sge sges[SIM_MAX_SGE];
};

struct sim_qp {
    struct ibv_qp ibv;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init_attr;

    pthread_mutex_t lock; /* all that follows, attr and ibv.state */
    pthread_cond_t changed;
    bool closing;
    bool stale; /* request_fd leads to an earlier peer */
    struct sim_send *sends, **sends_tail;
    uint32_t send_count; /* the one that is being performed included */
    struct sim_recv *recvs, **recvs_tail;
    uint32_t recv_count;

    int listen_fd;
    int request_fd; /* our requests to the peer */
    int respond_fd; /* the peer's requests to us */
    pthread_t requester;
    pthread_t responder;
};

int sim_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int sim_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void sim_send_complete(struct sim_qp *qp, const struct sim_send *send, enum ibv_wc_status status);
void sim_recv_complete(struct sim_qp *qp, const struct sim_recv *recv, struct ibv_wc *wc);
/* The error state, for a queue pair that is locked. */
void sim_qp_fail_locked(struct sim_qp *qp);

/* Returns 0 or an errno value. */
int sim_transport_start(struct sim_qp *qp);
void sim_transport_stop(struct sim_qp *qp);
/* The queue pair, which is locked, may get another peer. */
void sim_transport_disconnect(struct sim_qp *qp);

/* A place in a scatter/gather list. */
struct sim_cursor {
    const struct ibv_pd *pd;
    const struct ibv_sge *sges;
    int count;
    int index;
    uint32_t offset;
};

/* Whether the key of the region covers the range with that access. */
bool sim_key_allows(const struct ibv_pd *pd, uint32_t key, uint64_t addr, uint64_t length,
                    uint32_t access);
bool sim_sges_allow(const struct sim_cursor *cursor, uint32_t access);
/* Copies between a buffer and registered memory; false if the key or the memory does not allow. */
bool sim_key_copy(const struct ibv_pd *pd, uint32_t key, uint64_t addr, void *buffer, size_t length,
                  uint32_t access, bool to_region);
bool sim_sges_copy(struct sim_cursor *cursor, void *buffer, size_t length, bool to_region);
/* Performs an 8-byte atomic operation on registered memory and gives the value before it. */
bool sim_key_atomic(const struct ibv_pd *pd, uint32_t key, uint64_t addr, enum ibv_wr_opcode opcode,
                    uint64_t compare_add, uint64_t swap, uint64_t *before);

#endif /* AMR_SIM_INTERNAL_H */
