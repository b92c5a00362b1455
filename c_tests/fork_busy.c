/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * fork() while other threads are anywhere in the library: whatever they held, the child can use
 * the library, and exits. F40.
 */
#include "device.h"
#include "process.h"

#include <pthread.h>
#include <sched.h>

enum { CHILDREN = 200 };

static struct device device;
static void *buffer;
static int ended;

static int is_running(void) {
    return !__atomic_load_n(&ended, __ATOMIC_RELAXED);
}

static void callback(struct ibv_mr *mr, int status, void *ctx) {
    (void)ctx;
    CHECK_EQ(status, 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void *submit(void *arg) {
    while (is_running())
        if (amr_register_async(device.pd, buffer, PAGE, ACCESS, callback, NULL) == EAGAIN)
            sched_yield();
    return arg;
}

static void *create_and_destroy(void *arg) {
    while (is_running()) {
        struct amr_engine *engine = new_engine(2, 4);
        struct amr_cq *cq = new_cq(engine, 4);

        CHECK(amr_cq_fd(cq) >= 0);
        CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, buffer, PAGE)), 0);
        CHECK_EQ(amr_drain(engine, NULL, -1), 0);
        CHECK_EQ(amr_destroy_cq(cq), 0);
        CHECK_EQ(amr_destroy_engine(engine), 0);
    }
    return arg;
}

__attribute__((noreturn)) static void child_main(void) {
    struct device own = open_device();
    struct amr_engine *engine;
    struct outcome outcome;

    outcome_init(&outcome);
    CHECK_EQ(amr_register_async(own.pd, buffer, PAGE, ACCESS, outcome_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(outcome.status, 0);
    CHECK_EQ(ibv_dereg_mr(outcome.mr), 0);
    engine = new_engine(1, 4);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    exit_child(0);
}

int main(void) {
    pthread_t submitter, creator;

    if (SANITIZED)
        skip("a sanitizer's own locks do not survive such a fork");
    device = open_sim();
    buffer = map_pages(PAGE);
    CHECK_EQ(sim_configure("pins=0"), 0);
    CHECK_EQ(pthread_create(&submitter, NULL, submit, NULL), 0);
    CHECK_EQ(pthread_create(&creator, NULL, create_and_destroy, NULL), 0);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();

        CHECK(child >= 0);
        if (child == 0)
            child_main();
        check_child(child);
    }
    __atomic_store_n(&ended, 1, __ATOMIC_RELAXED);
    CHECK_EQ(pthread_join(submitter, NULL), 0);
    CHECK_EQ(pthread_join(creator, NULL), 0);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    CHECK_EQ(sim_counts().live_mrs, 0);
    close_device(device);
    return 0;
}
