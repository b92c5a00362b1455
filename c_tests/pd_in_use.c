/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A PD whose region waits for its deregistration is in use, as verbs says; once it is drained it
 * can go. F28.
 */
#include "device.h"

static struct ibv_mr *new_mr(struct ibv_pd *pd, void *buffer) {
    struct ibv_mr *mr = ibv_reg_mr(pd, buffer, PAGE, ACCESS);

    CHECK(mr != NULL);
    return mr;
}

/* Keeps the only worker until it is told to go on. */
static sem_t arrived, go_on;

static void hold_worker(struct ibv_mr *mr, int status, void *ctx) {
    CHECK_EQ(status, 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    sem_post(&arrived);
    while (sem_wait(&go_on) != 0)
        CHECK_EQ(errno, EINTR);
    (void)ctx;
}

int main(void) {
    struct device device;
    struct ibv_pd *pd;
    struct outcome outcome;
    void *buffer;

    CHECK_EQ(setenv("AMR_WORKERS", "1", 1), 0);
    device = open_device();
    buffer = map_pages(PAGE);
    CHECK_EQ(sem_init(&arrived, 0, 0), 0);
    CHECK_EQ(sem_init(&go_on, 0, 0), 0);
    for (int i = 0; i < 20; i++) {
        pd = ibv_alloc_pd(device.context);
        CHECK(pd != NULL);
        CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, hold_worker, NULL), 0);
        sem_wait(&arrived);
        outcome_init(&outcome);
        CHECK_EQ(amr_deregister_async(new_mr(pd, buffer), outcome_callback, &outcome), 0);
        CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
        CHECK_EQ(amr_drain(NULL, pd, 0), ETIMEDOUT);
        sem_post(&go_on);
        CHECK_EQ(amr_drain(NULL, pd, -1), 0);
        CHECK_EQ(ibv_dealloc_pd(pd), 0);
        CHECK_EQ(outcome.status, 0);
        outcome_end(&outcome);
    }
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    close_device(device);
    return 0;
}
