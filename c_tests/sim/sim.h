/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Control interface of the simulated RDMA device.
 *
 * A test is linked with the real libibverbs and run with LD_LIBRARY_PATH pointing at the simulated
 * one. The functions below are therefore looked up in the running process; calling any of them but
 * sim_present() without the simulated device loaded ends the process with a clear line.
 *
 * Works from C99 and C++11.
 */
#ifndef AMR_SIM_H
#define AMR_SIM_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Data ------------------------------------------------------------------------------------ */

/* Kinds of call that can be told to fail, be slow or wait. A registration is every ibv_reg_*_mr
 * call and ibv_rereg_mr; a deregistration is ibv_dereg_mr. */
enum {
    SIM_REG = 1 << 0,
    SIM_DEREG = 1 << 1,
};

/* Which exported symbol (or context operation) was called. */
enum sim_symbol {
    SIM_IBV_REG_MR = 1,
    SIM_IBV_REG_MR_IOVA,
    SIM_IBV_REG_MR_IOVA2,
    SIM_IBV_REG_DMABUF_MR,
    SIM_IBV_REREG_MR,
    SIM_IBV_DEREG_MR,
    SIM_IBV_ADVISE_MR,
};

/* One recorded call. Fields that a call does not have are zero. */
struct sim_call {
    uint32_t symbol;   /* enum sim_symbol */
    int32_t result;    /* 0, or the errno value that the call failed with */
    int32_t succeeded; /* tells success from "NULL with errno 0" */
    int32_t tid;       /* kernel thread id of the caller */
    const void *pd;
    const void *mr; /* what was returned, or deregistered */
    const void *addr;
    size_t length;
    uint64_t iova;
    uint32_t access;   /* advice, for SIM_IBV_ADVISE_MR */
    int32_t fd;        /* dma-buf, else -1 */
    uint64_t begin_ns; /* CLOCK_MONOTONIC */
    uint64_t end_ns;
};

/* Calls are counted since the process began or sim_reset(); live objects are what exists now. */
struct sim_counts {
    uint64_t reg_calls; /* finished registrations, failed ones included */
    uint64_t reg_failed;
    uint64_t dereg_calls;
    uint64_t dereg_failed;
    uint64_t live_contexts;
    uint64_t live_pds;
    uint64_t live_mrs;
    uint64_t live_cqs;
    uint64_t live_qps;
    uint64_t pinned_bytes; /* by live memory regions, as pinned with pins=1 */
    uint64_t running;      /* calls that are inside now */
    uint64_t peak_running; /* most calls that were inside at one time; needs peak=1 */
    uint64_t calls_after_exit;
};

/* ---- Functions ------------------------------------------------------------------------------- */

/* int sim_present(void)
 *     1 if the simulated device is loaded, else 0.
 *
 * int sim_can_pin(void)
 *     1 if this kernel lets this process pin memory (pins=1), else 0.
 *
 * int sim_configure(const char *settings)
 *     Changes settings; the text is that of the environment variable AMR_SIM, see README.md. Keys
 *     that are not mentioned keep their value; rules (fail_*, delay_nth, ...) add to those there.
 *     A text with a *_nth, *_first or *_after rule restarts the numbering of calls of that kind:
 *     the next one is number 1. Returns 0, or EINVAL with nothing changed.
 *
 * void sim_reset(void)
 *     Opens the gate; back to the settings of AMR_SIM; counts, peak, rules and records start anew.
 *     Live objects stay. To be called while no verbs call is running.
 *
 * void sim_fail_range(const void *addr, size_t length, int err)
 *     Registrations that overlap [addr, addr + length) fail with err. Up to 16 ranges.
 *
 * void sim_gate_close(int kinds)      SIM_REG | SIM_DEREG
 * void sim_gate_pass(unsigned count)  lets so many calls through a closed gate
 * void sim_gate_open(void)
 *     A call of a closed kind waits inside until the gate lets it through.
 *
 * int sim_wait_running(unsigned count, int timeout_ms)
 *     Waits until at least count calls are inside (at the gate, or in a delay, or working).
 *     Returns 0, or ETIMEDOUT. A negative timeout waits for ever.
 *
 * void sim_get_counts(struct sim_counts *counts)
 *
 * void sim_record(int on)
 *     Recording of calls, off by default. Turning it on forgets earlier records.
 *
 * size_t sim_calls(struct sim_call *calls, size_t max)
 *     Copies the newest of the last 4096 finished calls, oldest first, and returns how many.
 *
 * void sim_mark_exit(void)
 *     Counts verbs calls as "after exit" from now on; may be given to atexit(). Without it, that
 *     moment is when the device's own ELF destructor runs.
 */

#define SIM_RTLD_DEFAULT ((void *)0) /* RTLD_DEFAULT, which strict C99 hides */

static inline void *sim_find(const char *name) {
    void *symbol = dlsym(SIM_RTLD_DEFAULT, name);

    if (symbol == NULL) {
        fprintf(stderr, "sim.h: %s: the simulated device is not loaded, set LD_LIBRARY_PATH\n",
                name);
        exit(2);
    }
    return symbol;
}

static inline int sim_present(void) {
    return dlsym(SIM_RTLD_DEFAULT, "sim_configure") != NULL;
}

/* A function pointer cannot be cast from void * in ISO C, so its bytes are copied. */
#define SIM_LOOK_UP(function, name)                                                                \
    do {                                                                                           \
        void *symbol_ = sim_find(name);                                                            \
        memcpy(&(function), &symbol_, sizeof(function));                                           \
    } while (0)

#ifndef SIM_IMPLEMENTATION

static inline int sim_can_pin(void) {
    int (*call)(void);
    SIM_LOOK_UP(call, "sim_can_pin");
    return call();
}

static inline int sim_configure(const char *settings) {
    int (*call)(const char *);
    SIM_LOOK_UP(call, "sim_configure");
    return call(settings);
}

static inline void sim_reset(void) {
    void (*call)(void);
    SIM_LOOK_UP(call, "sim_reset");
    call();
}

static inline void sim_fail_range(const void *addr, size_t length, int err) {
    void (*call)(const void *, size_t, int);
    SIM_LOOK_UP(call, "sim_fail_range");
    call(addr, length, err);
}

static inline void sim_gate_close(int kinds) {
    void (*call)(int);
    SIM_LOOK_UP(call, "sim_gate_close");
    call(kinds);
}

static inline void sim_gate_pass(unsigned count) {
    void (*call)(unsigned);
    SIM_LOOK_UP(call, "sim_gate_pass");
    call(count);
}

static inline void sim_gate_open(void) {
    void (*call)(void);
    SIM_LOOK_UP(call, "sim_gate_open");
    call();
}

static inline int sim_wait_running(unsigned count, int timeout_ms) {
    int (*call)(unsigned, int);
    SIM_LOOK_UP(call, "sim_wait_running");
    return call(count, timeout_ms);
}

static inline void sim_get_counts(struct sim_counts *counts) {
    void (*call)(struct sim_counts *);
    SIM_LOOK_UP(call, "sim_get_counts");
    call(counts);
}

static inline void sim_record(int on) {
    void (*call)(int);
    SIM_LOOK_UP(call, "sim_record");
    call(on);
}

static inline size_t sim_calls(struct sim_call *calls, size_t max) {
    size_t (*call)(struct sim_call *, size_t);
    SIM_LOOK_UP(call, "sim_calls");
    return call(calls, max);
}

static inline void sim_mark_exit(void) {
    void (*call)(void);
    SIM_LOOK_UP(call, "sim_mark_exit");
    call();
}

#else /* the simulated device itself */

int sim_can_pin(void);
int sim_configure(const char *settings);
void sim_reset(void);
void sim_fail_range(const void *addr, size_t length, int err);
void sim_gate_close(int kinds);
void sim_gate_pass(unsigned count);
void sim_gate_open(void);
int sim_wait_running(unsigned count, int timeout_ms);
void sim_get_counts(struct sim_counts *counts);
void sim_record(int on);
size_t sim_calls(struct sim_call *calls, size_t max);
void sim_mark_exit(void);

#endif /* SIM_IMPLEMENTATION */

#ifdef __cplusplus
}
#endif

#endif /* AMR_SIM_H */
