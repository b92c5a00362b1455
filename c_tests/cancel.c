/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A request that waits can be cancelled; one that runs cannot; of equal ones the oldest is meant.
 */
#include "device.h"

#include <poll.h>

static struct device device;
static struct amr_engine *engine;
static struct amr_cq *cq;
static char *buffer;

/* From here on the engine's one worker is busy with request 1000. */
static void hold_worker(void) {
    sim_gate_close(SIM_REG | SIM_DEREG);
    post_reg(cq, 1000, device.pd, buffer, PAGE);
    wait_running(1);
}

static void release_worker(void) {
    struct amr_wc wc;

    sim_gate_open();
    wc = read_wc(cq);
    CHECK_EQ(wc.wr_id, 1000);
    CHECK_EQ(wc.status, 0);
    CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
}

static void queued_and_running(void) {
    struct pollfd pollfd = {.fd = amr_cq_fd(cq), .events = POLLIN};
    struct amr_wc wc;
    uint64_t calls;

    CHECK_EQ(amr_cancel(cq, 1), ENOENT);
    hold_worker();
    calls = sim_counts().reg_calls;
    for (uint64_t id = 1; id <= 5; id++)
        post_reg(cq, id, device.pd, buffer, PAGE);
    CHECK_EQ(amr_cancel(cq, 1000), EALREADY);
    CHECK_EQ(amr_cancel(cq, 6), ENOENT);

    /* The completion is there before the call returns. */
    for (uint64_t id = 5; id >= 1; id--) {
        CHECK_EQ(poll(&pollfd, 1, 0), 0);
        CHECK_EQ(amr_cancel(cq, id), 0);
        CHECK_EQ(poll(&pollfd, 1, 0), 1);
        CHECK_EQ(amr_poll_cq(cq, 1, &wc), 1);
        CHECK_EQ(wc.wr_id, id);
        CHECK_EQ(wc.opcode, AMR_OP_REG_MR);
        CHECK_EQ(wc.status, ECANCELED);
        CHECK(wc.mr == NULL);
        CHECK_EQ(amr_cancel(cq, id), ENOENT);
    }
    release_worker();
    CHECK_EQ(amr_cancel(cq, 1000), ENOENT);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    check_empty(cq);
    CHECK_EQ(sim_counts().reg_calls, calls + 1);
    CHECK_EQ(stats_of(engine).cancelled, 5);
    CHECK_EQ(stats_of(engine).failed, 0);
}

/* A cancelled deregistration leaves the region alive and gives it back. */
static void deregistration(void) {
    struct ibv_mr *mr = reg(cq, device.pd, buffer, PAGE);
    struct amr_wc wc;

    hold_worker();
    post(cq, dereg_wr(7, mr));
    CHECK_EQ(amr_cancel(cq, 7), 0);
    wc = read_wc(cq);
    CHECK_EQ(wc.wr_id, 7);
    CHECK_EQ(wc.opcode, AMR_OP_DEREG_MR);
    CHECK_EQ(wc.status, ECANCELED);
    CHECK(wc.mr == mr);
    release_worker();
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

/* Requests with the same wr_id are told apart here by their opcode and region. */
static void equal_ids(void) {
    struct ibv_mr *first = reg(cq, device.pd, buffer, PAGE);
    struct ibv_mr *last = reg(cq, device.pd, buffer, PAGE);
    struct amr_wc wc;

    hold_worker();
    post(cq, dereg_wr(7, first));
    post_reg(cq, 7, device.pd, buffer, PAGE);
    post(cq, dereg_wr(7, last));
    CHECK_EQ(amr_cancel(cq, 7), 0);
    CHECK(read_wc(cq).mr == first);
    CHECK_EQ(amr_cancel(cq, 7), 0);
    CHECK_EQ(read_wc(cq).opcode, AMR_OP_REG_MR);
    CHECK_EQ(amr_cancel(cq, 7), 0);
    CHECK(read_wc(cq).mr == last);
    CHECK_EQ(amr_cancel(cq, 7), ENOENT);

    /* A queued one is meant although one with the same wr_id runs. */
    post_reg(cq, 1000, device.pd, buffer, PAGE);
    CHECK_EQ(amr_cancel(cq, 1000), 0);
    wc = read_wc(cq);
    CHECK_EQ(wc.wr_id, 1000);
    CHECK_EQ(wc.status, ECANCELED);
    CHECK_EQ(amr_cancel(cq, 1000), EALREADY);
    release_worker();
    CHECK_EQ(ibv_dereg_mr(first), 0);
    CHECK_EQ(ibv_dereg_mr(last), 0);
}

/* Requests of another queue are none of its business. */
static void other_queue(void) {
    struct amr_cq *other = new_cq(engine, 4);

    hold_worker();
    post_reg(other, 7, device.pd, buffer, PAGE);
    CHECK_EQ(amr_cancel(cq, 7), ENOENT);
    CHECK_EQ(amr_cancel(other, 1000), ENOENT);
    CHECK_EQ(amr_cancel(other, 7), 0);
    CHECK_EQ(read_wc(other).status, ECANCELED);
    /* Without requests it may go, though its cancelled one has still a place in the engine. */
    CHECK_EQ(amr_destroy_cq(other), 0);
    release_worker();
}

/* A cancelled request holds its place until a worker comes by. */
static void place_in_the_queue(void) {
    struct amr_engine *small = new_engine(1, 2);
    struct amr_cq *full = new_cq(small, 8);
    struct amr_wr wr = reg_wr(3, device.pd, buffer, PAGE, ACCESS);
    struct amr_wc wc[4];

    sim_gate_close(SIM_REG);
    post_reg(full, 0, device.pd, buffer, PAGE);
    wait_running(1);
    post_reg(full, 1, device.pd, buffer, PAGE);
    post_reg(full, 2, device.pd, buffer, PAGE);
    CHECK_EQ(amr_post(full, &wr, 1, NULL), EAGAIN);
    CHECK_EQ(amr_cancel(full, 1), 0);
    CHECK_EQ(amr_cancel(full, 2), 0);
    sim_gate_open();
    read_wcs(full, wc, 3);
    /* The last completion comes before the places are free. */
    while (amr_post(full, &wr, 1, NULL) == EAGAIN)
        usleep(100);
    read_wcs(full, wc + 3, 1);
    for (int i = 0; i < 4; i++)
        if (wc[i].mr != NULL)
            CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
    CHECK_EQ(sim_counts().live_mrs, 0);
    CHECK_EQ(amr_destroy_cq(full), 0);
    CHECK_EQ(amr_destroy_engine(small), 0);
}

int main(void) {
    device = open_sim();
    buffer = map_pages(PAGE);
    engine = new_engine(1, 64);
    cq = new_cq(engine, 64);
    queued_and_running();
    deregistration();
    equal_ids();
    other_queue();
    place_in_the_queue();
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
