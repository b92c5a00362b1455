/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* amr_wait_cq: its time limits, its waking, several waiters, signals meanwhile. */
#include "device.h"
#include "process.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>

enum { WAITERS = 4 };

static struct amr_cq *cq;
static pid_t waiter_ids[WAITERS];
static int handled;

static void handler(int signal) {
    (void)signal;
    __atomic_add_fetch(&handled, 1, __ATOMIC_RELEASE);
}

/* Waits for one completion and returns its wr_id. */
static void *waiter(void *arg) {
    struct amr_wc wc;

    __atomic_store_n((pid_t *)arg, thread_id(), __ATOMIC_RELEASE);
    CHECK_EQ(amr_wait_cq(cq, 1, &wc, -1), 1);
    CHECK_EQ(wc.status, 0);
    CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    return (void *)(uintptr_t)wc.wr_id;
}

static void start_waiter(pthread_t *thread, pid_t *id) {
    __atomic_store_n(id, 0, __ATOMIC_RELAXED);
    CHECK_EQ(pthread_create(thread, NULL, waiter, id), 0);
    while (__atomic_load_n(id, __ATOMIC_ACQUIRE) == 0)
        usleep(100);
    wait_asleep(*id);
}

static void time_limits(struct ibv_pd *pd, void *buffer) {
    struct amr_wc wc[4];

    CHECK_EQ(amr_wait_cq(cq, 4, wc, 0), 0);
    CHECK_EQ(amr_wait_cq(cq, 4, wc, 5), 0);
    for (uint64_t id = 0; id < 3; id++)
        post_reg(cq, id, pd, buffer, PAGE);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    /* What is there is given whatever the limit, and no more is waited for. */
    CHECK_EQ(amr_wait_cq(cq, 1, wc, 0), 1);
    CHECK_EQ(amr_wait_cq(cq, 1, wc + 1, -1), 1);
    CHECK_EQ(amr_wait_cq(cq, INT_MAX, wc + 2, -1), 1);
    CHECK_EQ(amr_wait_cq(cq, 4, wc + 3, 5), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
}

static void several_waiters(struct ibv_pd *pd, void *buffer) {
    pthread_t threads[WAITERS];
    unsigned woken = 0;

    for (int i = 0; i < WAITERS; i++)
        start_waiter(&threads[i], &waiter_ids[i]);
    for (uint64_t id = 0; id < WAITERS; id++)
        post_reg(cq, id, pd, buffer, PAGE);
    for (int i = 0; i < WAITERS; i++) {
        void *id;

        CHECK_EQ(pthread_join(threads[i], &id), 0);
        woken |= 1u << (uintptr_t)id;
    }
    CHECK_EQ(woken, (1u << WAITERS) - 1);
    check_empty(cq);
}

/* A handler without SA_RESTART, and the wait goes on. */
static void signals(struct ibv_pd *pd, void *buffer) {
    struct sigaction action = {.sa_handler = handler};
    pthread_t thread;
    void *id;

    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    start_waiter(&thread, &waiter_ids[0]);
    for (int i = 1; i <= 10; i++) {
        CHECK_EQ(pthread_kill(thread, SIGUSR1), 0);
        while (__atomic_load_n(&handled, __ATOMIC_ACQUIRE) < i)
            usleep(100);
        wait_asleep(waiter_ids[0]);
    }
    post_reg(cq, 77, pd, buffer, PAGE);
    CHECK_EQ(pthread_join(thread, &id), 0);
    CHECK_EQ((uintptr_t)id, 77);
}

int main(void) {
    struct device device = open_device();
    void *buffer = map_pages(PAGE);

    cq = new_cq(NULL, 16);
    for (int i = 0; i < 20; i++) {
        time_limits(device.pd, buffer);
        several_waiters(device.pd, buffer);
    }
    signals(device.pd, buffer);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    check_empty(cq);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
