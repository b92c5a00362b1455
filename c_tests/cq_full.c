/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A completion queue takes exactly as many requests as it has places, and a place is free again
 * once its completion was read.
 */
#include "device.h"

enum { CAPACITY = 5, ROUNDS = 5000 };

static struct device device;
static void *buffer;

/* Takes `expected` requests of the 8 that are posted. */
static void post_up_to(struct amr_cq *cq, size_t expected) {
    struct amr_wr wr[8];
    size_t posted = 99;

    for (size_t i = 0; i < ARRAY_SIZE(wr); i++)
        wr[i] = reg_wr(i, device.pd, buffer, PAGE, ACCESS);
    CHECK_EQ(amr_post(cq, wr, ARRAY_SIZE(wr), &posted), EAGAIN);
    CHECK_EQ(posted, expected);
}

static void read_some(struct amr_cq *cq, int count) {
    struct amr_wc wc[CAPACITY];

    read_wcs(cq, wc, count);
    for (int i = 0; i < count; i++) {
        CHECK_EQ(wc[i].status, 0);
        CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
    }
}

int main(void) {
    struct amr_engine *engine;
    struct amr_cq *cq, *other;

    device = open_sim();
    buffer = map_pages(PAGE);
    engine = new_engine(2, 64);
    cq = new_cq(engine, CAPACITY);
    other = new_cq(engine, 1);

    /* Places are taken from the submit on, whether or not a worker was there. */
    sim_gate_close(SIM_REG);
    post_up_to(cq, CAPACITY);
    post_up_to(cq, 0);
    post_up_to(other, 1);
    sim_gate_open();
    read_some(other, 1);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    post_up_to(cq, 0);

    /* What is taken out can be put in, at each fill level. */
    for (int i = 0; i < ROUNDS; i++) {
        int count = 1 + i % CAPACITY;

        read_some(cq, count);
        post_up_to(cq, (size_t)count);
    }
    read_some(cq, CAPACITY);
    check_empty(cq);
    CHECK_EQ(sim_counts().live_mrs, 0);

    CHECK_EQ(amr_destroy_cq(other), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
