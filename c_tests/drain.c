/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* amr_drain waits for what is queued or running on a PD, and for nothing else. F28. */
#include "device.h"

static struct device device;
static char *buffer;

static void check_states(struct amr_engine *engine, struct ibv_pd *pd, int status) {
    CHECK_EQ(amr_drain(engine, pd, 0), status);
    CHECK_EQ(amr_drain(engine, pd, 5), status);
}

/* Registrations are held at the gate, deregistrations are not. */
static void one_pd_of_two(void) {
    struct amr_engine *engine = new_engine(2, 16);
    struct amr_cq *cq = new_cq(engine, 16);
    struct ibv_pd *other = ibv_alloc_pd(device.context);
    struct amr_wc wc;
    struct ibv_mr *mr;

    CHECK(other != NULL);
    check_states(engine, NULL, 0);
    mr = reg(cq, other, buffer, PAGE);

    sim_gate_close(SIM_REG);
    post_reg(cq, 1, device.pd, buffer, PAGE);
    wait_running(1);
    check_states(engine, device.pd, ETIMEDOUT);
    check_states(engine, NULL, ETIMEDOUT);
    check_states(engine, other, 0);

    /* The PD of a region that goes counts as well. */
    post(cq, dereg_wr(2, mr));
    CHECK_EQ(amr_drain(engine, other, -1), 0);
    CHECK_EQ(amr_poll_cq(cq, 1, &wc), 1);
    CHECK_EQ(wc.wr_id, 2);
    CHECK_EQ(ibv_dealloc_pd(other), 0);
    check_states(engine, device.pd, ETIMEDOUT);

    sim_gate_open();
    CHECK_EQ(amr_drain(engine, device.pd, -1), 0);
    CHECK_EQ(amr_poll_cq(cq, 1, &wc), 1);
    CHECK_EQ(wc.wr_id, 1);
    CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    check_states(engine, NULL, 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

/* F28: a PD can be closed after its drain, and not before. */
static void queued_deregistration(void) {
    struct amr_engine *engine = new_engine(1, 16);
    struct amr_cq *cq = new_cq(engine, 16);
    struct ibv_pd *pd = ibv_alloc_pd(device.context);
    struct ibv_mr *first, *second;
    struct amr_wc wc[2];

    CHECK(pd != NULL);
    first = reg(cq, device.pd, buffer, PAGE);
    second = reg(cq, pd, buffer, PAGE);
    sim_gate_close(SIM_DEREG);
    post(cq, dereg_wr(1, first));
    wait_running(1);
    post(cq, dereg_wr(2, second));
    check_states(engine, pd, ETIMEDOUT);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);

    sim_gate_open();
    CHECK_EQ(amr_drain(engine, pd, -1), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    read_wcs(cq, wc, 2);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

/* A cancelled request is over, although its place in the queue is not free yet. */
static void cancelled(void) {
    struct amr_engine *engine = new_engine(1, 16);
    struct amr_cq *cq = new_cq(engine, 16);
    struct ibv_pd *pd = ibv_alloc_pd(device.context);
    struct amr_wc wc[2];

    CHECK(pd != NULL);
    sim_gate_close(SIM_REG);
    post_reg(cq, 1, device.pd, buffer, PAGE);
    wait_running(1);
    post_reg(cq, 2, pd, buffer, PAGE);
    check_states(engine, pd, ETIMEDOUT);
    CHECK_EQ(amr_cancel(cq, 2), 0);
    CHECK_EQ(amr_drain(engine, pd, -1), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    sim_gate_open();
    read_wcs(cq, wc, 2);
    CHECK_EQ(wc[0].status, ECANCELED);
    CHECK_EQ(ibv_dereg_mr(wc[1].mr), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

static sem_t in_callback, leave_callback;
static int callback_ended;

static void slow_callback(struct ibv_mr *mr, int status, void *ctx) {
    (void)ctx;
    CHECK_EQ(status, 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    sem_post(&in_callback);
    sem_wait(&leave_callback);
    __atomic_store_n(&callback_ended, 1, __ATOMIC_RELEASE);
}

/* A request is over when its callback has returned. */
static void running_callback(void) {
    CHECK_EQ(sem_init(&in_callback, 0, 0), 0);
    CHECK_EQ(sem_init(&leave_callback, 0, 0), 0);
    CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, slow_callback, NULL), 0);
    sem_wait(&in_callback);
    check_states(NULL, device.pd, ETIMEDOUT);
    check_states(amr_default_engine(), NULL, ETIMEDOUT);
    sem_post(&leave_callback);
    CHECK_EQ(amr_drain(NULL, device.pd, -1), 0);
    CHECK(__atomic_load_n(&callback_ended, __ATOMIC_ACQUIRE));
}

int main(void) {
    device = open_sim();
    buffer = map_pages(PAGE);
    one_pd_of_two();
    queued_deregistration();
    cancelled();
    running_callback();
    close_device(device);
    return 0;
}
