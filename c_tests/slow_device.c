/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A call that does not come back blocks its worker, and neither the callers nor the others. F42. */
#include "device.h"

enum { COUNT = 100 };

int main(void) {
    struct device device = open_sim();
    char *buffer = map_pages(PAGE);
    struct amr_engine *engine = new_engine(2, 256);
    struct amr_cq *cq = new_cq(engine, 256);
    struct ibv_mr *mrs[COUNT];
    struct amr_wc wc[COUNT];

    for (int i = 0; i < COUNT; i++)
        mrs[i] = reg(cq, device.pd, buffer, PAGE);

    for (int round = 0; round < 20; round++) {
        struct amr_wc slow;

        sim_gate_close(SIM_REG);
        post_reg(cq, 1000, device.pd, buffer, PAGE);
        wait_running(1);
        for (uint64_t i = 0; i < COUNT; i++)
            post(cq, dereg_wr(i, mrs[i]));
        read_wcs(cq, wc, COUNT);
        for (int i = 0; i < COUNT; i++) {
            CHECK(wc[i].wr_id < COUNT);
            CHECK_EQ(wc[i].status, 0);
        }
        check_empty(cq);
        CHECK_EQ(sim_counts().running, 1);
        sim_gate_open();
        slow = read_wc(cq);
        CHECK_EQ(slow.wr_id, 1000);
        CHECK_EQ(ibv_dereg_mr(slow.mr), 0);
        for (int i = 0; i < COUNT; i++)
            mrs[i] = reg(cq, device.pd, buffer, PAGE);
    }

    for (int i = 0; i < COUNT; i++)
        CHECK_EQ(ibv_dereg_mr(mrs[i]), 0);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
