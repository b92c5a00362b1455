/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* As many calls run at a time as there are workers, and never more. F43 F45. */
#include "device.h"

static void with_workers(struct device device, void *buffer, uint32_t workers) {
    struct amr_engine *engine = new_engine(workers, 256);
    struct amr_cq *cq = new_cq(engine, 256);
    int count = 4 * (int)workers;

    reset_sim();
    CHECK_EQ(sim_configure("peak=1"), 0);
    sim_gate_close(SIM_REG);
    for (int i = 0; i < count; i++)
        post_reg(cq, (uint64_t)i, device.pd, buffer, PAGE);
    wait_running(workers);
    sim_gate_open();
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(sim_counts().peak_running, workers);
    while (count-- > 0)
        CHECK_EQ(ibv_dereg_mr(read_wc(cq).mr), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

int main(void) {
    struct device device = open_sim();
    void *buffer = map_pages(PAGE);
    static const uint32_t workers[] = {1, 2, 3, 8, 33, AMR_MAX_WORKERS};

    for (size_t i = 0; i < ARRAY_SIZE(workers); i++)
        with_workers(device, buffer, workers[i]);
    close_device(device);
    return 0;
}
