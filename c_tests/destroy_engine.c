/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Engines come and go, and leave no thread and no descriptor behind. F29. */
#include "device.h"
#include "process.h"

static struct device device;
static void *buffer;

static void create_and_destroy(uint32_t workers, int fds) {
    struct amr_engine *engine = new_engine(workers, 64);
    struct amr_cq *cq = new_cq(engine, 8);
    struct amr_cq *watched = new_cq(engine, 8);

    CHECK_EQ(count_workers(), workers);
    CHECK(amr_cq_fd(watched) >= 0);
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, buffer, PAGE)), 0);
    CHECK_EQ(ibv_dereg_mr(reg(watched, device.pd, buffer, PAGE)), 0);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);

    /* A queue that is alive keeps its engine, which is unharmed. */
    CHECK_EQ(amr_destroy_engine(engine), EBUSY);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), EBUSY);
    CHECK_EQ(ibv_dereg_mr(reg(watched, device.pd, buffer, PAGE)), 0);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(watched), 0);

    CHECK_EQ(amr_destroy_engine(engine), 0);
    wait_workers(0);
    CHECK_EQ(count_fds(), fds);
}

/* A queue's cancelled request outlives it in the engine's queue, and hurts nobody. */
static void cancelled_request_left(void) {
    struct amr_engine *engine = new_engine(1, 64);
    struct amr_cq *cq = new_cq(engine, 4);
    struct amr_cq *gone = new_cq(engine, 4);
    struct amr_wc wc;

    sim_gate_close(SIM_REG);
    post_reg(cq, 1, device.pd, buffer, PAGE);
    wait_running(1);
    post_reg(gone, 2, device.pd, buffer, PAGE);
    CHECK_EQ(amr_cancel(gone, 2), 0);
    CHECK_EQ(read_wc(gone).status, ECANCELED);
    CHECK_EQ(amr_destroy_cq(gone), 0);
    sim_gate_open();
    wc = read_wc(cq);
    CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

int main(void) {
    int fds;

    device = open_sim();
    buffer = map_pages(PAGE);

    /* What the device, or the first use of the library, opens for good is not counted. */
    CHECK_EQ(ibv_dereg_mr(ibv_reg_mr(device.pd, buffer, PAGE, ACCESS)), 0);
    CHECK_EQ(amr_destroy_engine(new_engine(1, 0)), 0);
    fds = count_fds();
    for (uint32_t i = 0; i < 200; i++)
        create_and_destroy(1 + i % 3, fds);
    create_and_destroy(AMR_MAX_WORKERS, fds);
    for (int i = 0; i < 50; i++)
        cancelled_request_left();

    /* The default engine lives as long as the process. */
    CHECK_EQ(amr_destroy_engine(amr_default_engine()), EINVAL);
    CHECK(amr_default_engine() == amr_default_engine());
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    close_device(device);
    return 0;
}
