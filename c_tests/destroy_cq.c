/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Destroying a completion queue: unread regions do not leak, requests in flight keep it alive, and
 * nothing waits. F29 F64.
 */
#include "device.h"
#include "process.h"

enum { COUNT = 100 };

static struct device device;
static void *buffer;

/* As many regions as nobody read of go away with the queue; what was read stays. */
static void unread(struct amr_engine *engine, int read, int with_fd) {
    struct amr_cq *cq = new_cq(engine, COUNT);
    struct amr_wc wc[COUNT];
    int fds;

    if (with_fd)
        CHECK(amr_cq_fd(cq) >= 0);
    for (uint64_t id = 0; id < COUNT; id++)
        post_reg(cq, id, device.pd, buffer, PAGE);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(sim_counts().live_mrs, COUNT);
    if (read > 0)
        read_wcs(cq, wc, read);
    fds = count_fds();
    CHECK_EQ(amr_destroy_cq(cq), 0);
    if (with_fd)
        CHECK(count_fds() < fds);
    CHECK_EQ(sim_counts().live_mrs, read);
    for (int i = 0; i < read; i++)
        CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
}

/* A failed registration and a deregistration leave nothing that could be deregistered. */
static void other_completions(struct amr_engine *engine) {
    struct amr_cq *cq = new_cq(engine, 4);
    struct ibv_mr *mr = reg(cq, device.pd, buffer, PAGE);

    sim_fail_range(buffer, PAGE, EFAULT);
    post_reg(cq, 1, device.pd, buffer, PAGE);
    post(cq, dereg_wr(2, mr));
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(sim_counts().live_mrs, 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    reset_sim();
}

static void in_flight(struct amr_engine *engine) {
    struct amr_cq *cq = new_cq(engine, 4);
    struct amr_wc wc[3];

    sim_gate_close(SIM_REG);
    post_reg(cq, 1, device.pd, buffer, PAGE);
    wait_running(1);
    CHECK_EQ(amr_destroy_cq(cq), EBUSY);
    post_reg(cq, 2, device.pd, buffer, PAGE);
    post_reg(cq, 3, device.pd, buffer, PAGE);
    CHECK_EQ(amr_destroy_cq(cq), EBUSY);
    CHECK_EQ(amr_cancel(cq, 3), 0);
    CHECK_EQ(amr_destroy_cq(cq), EBUSY);

    /* And unharmed it is. */
    sim_gate_open();
    read_wcs(cq, wc, 3);
    for (int i = 0; i < 3; i++)
        if (wc[i].wr_id != 3)
            CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, buffer, PAGE)), 0);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
}

int main(void) {
    struct amr_engine *engine;

    device = open_sim();
    buffer = map_pages(PAGE);
    engine = new_engine(1, 256);
    unread(engine, 0, 0);
    unread(engine, 0, 1);
    unread(engine, 30, 1);
    unread(engine, COUNT, 1);
    other_completions(engine);
    for (int i = 0; i < 20; i++)
        in_flight(engine);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
