/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A full submission queue refuses and loses nothing. */
#include "device.h"

enum { DEPTH = 4, ROUNDS = 50 };

static void one_round(struct amr_engine *engine, struct amr_cq *cq, struct ibv_pd *pd,
                      void *buffer) {
    struct amr_wr wr[DEPTH + 3];
    struct amr_wc wc[DEPTH + 1];
    size_t posted = 99;
    unsigned seen = 0;

    sim_gate_close(SIM_REG);
    post_reg(cq, 0, pd, buffer, PAGE);
    wait_running(1);

    /* The worker is busy, so that what follows stays in the queue. */
    for (size_t i = 0; i < ARRAY_SIZE(wr); i++)
        wr[i] = reg_wr(i + 1, pd, buffer, PAGE, ACCESS);
    CHECK_EQ(amr_post(cq, wr, 1, &posted), 0);
    CHECK_EQ(posted, 1);
    CHECK_EQ(amr_post(cq, wr + 1, ARRAY_SIZE(wr) - 1, &posted), EAGAIN);
    CHECK_EQ(posted, DEPTH - 1);
    CHECK_EQ(amr_post(cq, wr + DEPTH, 1, &posted), EAGAIN);
    CHECK_EQ(posted, 0);
    CHECK_EQ(amr_post(cq, wr + DEPTH, 1, NULL), EAGAIN);
    CHECK_EQ(stats_of(engine).queued, DEPTH);
    check_empty(cq);

    sim_gate_open();
    read_wcs(cq, wc, DEPTH + 1);
    for (int i = 0; i < DEPTH + 1; i++) {
        CHECK_EQ(wc[i].status, 0);
        CHECK(wc[i].wr_id <= DEPTH);
        seen |= 1u << wc[i].wr_id;
        CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
    }
    CHECK_EQ(seen, (1u << (DEPTH + 1)) - 1);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    check_empty(cq);
}

int main(void) {
    struct device device = open_sim();
    void *buffer = map_pages(PAGE);
    struct amr_engine *engine = new_engine(1, DEPTH);
    struct amr_cq *cq = new_cq(engine, 64);

    CHECK_EQ(stats_of(engine).queue_depth, DEPTH);
    for (int i = 0; i < ROUNDS; i++)
        one_round(engine, cq, device.pd, buffer);
    CHECK_EQ(sim_counts().reg_calls, ROUNDS * (DEPTH + 1));
    CHECK_EQ(stats_of(engine).submitted, ROUNDS * (DEPTH + 1));

    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);

    /* A depth that is no power of two becomes the next one. */
    engine = new_engine(1, DEPTH + 1);
    CHECK_EQ(stats_of(engine).queue_depth, 2 * DEPTH);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
