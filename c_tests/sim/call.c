/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a registration or deregistration does beside its work, if it was told to. */
#include "sim_internal.h"

#include <time.h>

static atomic_ullong running; /* of calls that began with SIM_FEATURE_PEAK */
static atomic_ullong peak;
static atomic_ullong reserved; /* live regions, while SIM_FEATURE_MAX_MR is set */

uint64_t sim_now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void delay(uint64_t us) {
    uint64_t end_ns = sim_now_ns() + us * 1000;
    struct timespec end = {(time_t)(end_ns / 1000000000u), (long)(end_ns % 1000000000u)};

    if (sim_get(&sim_settings.busy)) {
        while (sim_now_ns() < end_ns)
            ;
        return;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        ;
}

static void note_running(void) {
    unsigned long long now = atomic_fetch_add(&running, 1) + 1;
    unsigned long long most = atomic_load(&peak);

    while (now > most && !atomic_compare_exchange_weak(&peak, &most, now))
        ;
}

static bool reserve(void) {
    if (atomic_fetch_add(&reserved, 1) < sim_get(&sim_settings.max_mr))
        return true;
    atomic_fetch_sub(&reserved, 1);
    return false;
}

int sim_frame_enter(struct sim_frame *frame, const void *addr, size_t length) {
    uint32_t features = frame->features;
    int kind = sim_symbol_kind(frame->symbol);
    uint64_t delay_us = 0;
    uint64_t number = 0;
    int err = SIM_PROCEED;

    frame->reserved = false;
    frame->begin_ns = features & SIM_FEATURE_RECORD ? sim_now_ns() : 0;
    if (features & SIM_FEATURE_EXITED)
        sim_exit_late_call();
    if (features & SIM_FEATURE_PEAK)
        note_running();
    if (features & SIM_FEATURE_RULES)
        number = sim_rules_next_number(kind);
    if (features & SIM_FEATURE_GATE)
        sim_gate_wait(kind);
    if (features & SIM_FEATURE_DELAY) {
        uint64_t slow_len = sim_get(&sim_settings.slow_len);

        delay_us =
            sim_get(kind == SIM_REG ? &sim_settings.reg_delay_us : &sim_settings.dereg_delay_us);
        if (slow_len != 0 && length >= slow_len)
            delay_us += sim_get(&sim_settings.slow_len_us);
    }
    if (features & SIM_FEATURE_RULES)
        err = sim_rules_apply(kind, number, addr, length, &delay_us);
    if (delay_us > 0)
        delay(delay_us);
    if (err == SIM_PROCEED && (features & SIM_FEATURE_MAX_MR) && kind == SIM_REG &&
        frame->symbol != SIM_IBV_REREG_MR) {
        frame->reserved = reserve();
        if (!frame->reserved)
            err = ENOMEM;
    }
    return err;
}

void sim_frame_leave(const struct sim_frame *frame, struct sim_call *call) {
    uint32_t features = frame->features;

    if (features & SIM_FEATURE_MAX_MR) {
        bool ended = frame->symbol == SIM_IBV_DEREG_MR && call->succeeded;

        if (ended || (frame->reserved && !call->succeeded))
            atomic_fetch_sub(&reserved, 1);
    }
    if (features & SIM_FEATURE_RECORD) {
        call->begin_ns = frame->begin_ns;
        sim_record_call(call);
    }
    if (features & SIM_FEATURE_PEAK)
        atomic_fetch_sub(&running, 1);
    /* A successful call may leave anything in errno. */
    if ((features & SIM_FEATURE_CLOBBER) && call->succeeded)
        errno = EXDEV;
}

uint64_t sim_peak_running(void) {
    return atomic_load(&peak);
}

void sim_peak_restart(void) {
    atomic_store(&peak, atomic_load(&running));
}

void sim_max_mr_restart(void) {
    atomic_store(&reserved, sim_live_mrs());
}

void sim_calls_after_fork(void) {
    atomic_store(&running, 0);
    atomic_store(&peak, 0);
}
