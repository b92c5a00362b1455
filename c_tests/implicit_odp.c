/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The whole address space on demand: NULL with SIZE_MAX reaches the device as it is. F21. */
#include "device.h"

static void check_device_saw(struct ibv_pd *pd) {
    struct sim_call call;

    CHECK_EQ(sim_calls(&call, 1), 1);
    CHECK(call.pd == pd);
    CHECK(call.addr == NULL);
    CHECK_EQ(call.length, SIZE_MAX);
    CHECK_EQ(call.iova, 0);
    CHECK_EQ(call.access, ACCESS | IBV_ACCESS_ON_DEMAND);
    sim_record(1);
}

int main(void) {
    struct device device = open_sim();
    struct amr_cq *cq = new_cq(NULL, 1);
    struct outcome outcome;
    struct amr_wc wc;

    sim_record(1);
    post(cq, reg_wr(1, device.pd, NULL, SIZE_MAX, ACCESS | IBV_ACCESS_ON_DEMAND));
    wc = read_wc(cq);
    check_device_saw(device.pd);
    if (wc.status == 0)
        CHECK_EQ(ibv_dereg_mr(wc.mr), 0);

    outcome_init(&outcome);
    sim_record(1);
    CHECK_EQ(amr_register_async(device.pd, NULL, SIZE_MAX, ACCESS | IBV_ACCESS_ON_DEMAND,
                                outcome_callback, &outcome),
             0);
    outcome_wait(&outcome);
    check_device_saw(device.pd);
    if (outcome.status == 0)
        CHECK_EQ(ibv_dereg_mr(outcome.mr), 0);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    outcome_end(&outcome);

    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
