/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An engine's counters, exactly, at moments when the gate holds everything still. */
#include "device.h"

static struct amr_engine *engine;

static void expect(uint64_t submitted, uint64_t completed, uint64_t failed, uint64_t cancelled,
                   uint64_t queued, uint64_t running, uint64_t registered_bytes) {
    struct amr_stats stats = stats_of(engine);

    CHECK_EQ(stats.submitted, submitted);
    CHECK_EQ(stats.completed, completed);
    CHECK_EQ(stats.failed, failed);
    CHECK_EQ(stats.cancelled, cancelled);
    CHECK_EQ(stats.queued, queued);
    CHECK_EQ(stats.running, running);
    CHECK_EQ(stats.registered_bytes, registered_bytes);
    CHECK(stats.queue_ns_total >= stats.queue_ns_max);
    CHECK(stats.busy_ns_total >= stats.busy_ns_max);
    CHECK_EQ(stats.workers, 2);
    CHECK_EQ(stats.queue_depth, 16);
}

int main(void) {
    struct device device = open_sim();
    char *buffer = map_pages(16 * PAGE);
    struct amr_stats before = {0}, after = {0};
    struct amr_cq *cq;
    struct amr_wc wc[5];
    struct ibv_mr *mr = NULL;

    engine = new_engine(2, 16);
    cq = new_cq(engine, 16);
    expect(0, 0, 0, 0, 0, 0, 0);

    sim_gate_close(SIM_REG);
    for (uint64_t id = 1; id <= 5; id++)
        post_reg(cq, id, device.pd, buffer, id * PAGE);
    wait_running(2);
    expect(5, 0, 0, 0, 3, 2, 0);
    CHECK_EQ(amr_cancel(cq, 5), 0);
    expect(5, 1, 0, 1, 2, 2, 0);
    sim_gate_open();
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    expect(5, 5, 0, 1, 0, 0, (1 + 2 + 3 + 4) * PAGE);

    /* To read completions is no event. */
    read_wcs(cq, wc, 5);
    expect(5, 5, 0, 1, 0, 0, 10 * PAGE);
    for (int i = 0; i < 5; i++) {
        if (wc[i].wr_id == 5)
            continue;
        if (wc[i].wr_id == 3)
            mr = wc[i].mr;
        else
            post(cq, dereg_wr(wc[i].wr_id, wc[i].mr));
    }
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    expect(8, 8, 0, 1, 0, 0, 3 * PAGE);
    read_wcs(cq, wc, 3);

    CHECK_EQ(sim_configure("fail_first=1:ENOMEM,dereg_fail_first=1:EBUSY"), 0);
    post_reg(cq, 6, device.pd, buffer, PAGE);
    post(cq, dereg_wr(7, mr));
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    expect(10, 10, 2, 1, 0, 0, 3 * PAGE);
    read_wcs(cq, wc, 2);
    post(cq, dereg_wr(7, mr));
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    expect(11, 11, 2, 1, 0, 0, 0);
    read_wcs(cq, wc, 1);

    /* What is refused does not count. */
    CHECK_EQ(amr_post(cq, &(struct amr_wr){0}, 1, NULL), EINVAL);
    expect(11, 11, 2, 1, 0, 0, 0);

    /* A region that nobody read of goes with its queue. */
    post_reg(cq, 8, device.pd, buffer, PAGE);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    expect(12, 12, 2, 1, 0, 0, PAGE);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    expect(12, 12, 2, 1, 0, 0, 0);

    /* Engines count for themselves. */
    before.size = after.size = sizeof(before);
    CHECK_EQ(amr_query_stats(NULL, &before), 0);
    cq = new_cq(NULL, 1);
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, buffer, PAGE)), 0);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    CHECK_EQ(amr_query_stats(amr_default_engine(), &after), 0);
    CHECK_EQ(after.completed, before.completed + 1);
    expect(12, 12, 2, 1, 0, 0, 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
