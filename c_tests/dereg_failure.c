/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A deregistration that fails hands the region back alive, and can be tried again. F31. */
#include "device.h"

static const int errors[] = {EBUSY, EINVAL, EIO, ENOMEM, EPERM};

static void fail_next(int error) {
    char rule[64];

    snprintf(rule, sizeof(rule), "dereg_fail_nth=1:%d", error);
    CHECK_EQ(sim_configure(rule), 0);
}

static void by_queue(struct ibv_pd *pd, void *buffer, int error) {
    struct amr_cq *cq = new_cq(NULL, 2);
    struct ibv_mr *mr = reg(cq, pd, buffer, PAGE);
    struct amr_wc wc;

    fail_next(error);
    post(cq, dereg_wr(5, mr));
    wc = read_wc(cq);
    CHECK_EQ(wc.wr_id, 5);
    CHECK_EQ(wc.opcode, AMR_OP_DEREG_MR);
    CHECK_EQ(wc.status, error);
    CHECK(wc.mr == mr);
    CHECK_EQ(sim_counts().live_mrs, 1);
    CHECK_EQ(sim_counts().dereg_calls, 1);

    post(cq, dereg_wr(6, wc.mr));
    wc = read_wc(cq);
    CHECK_EQ(wc.wr_id, 6);
    CHECK_EQ(wc.status, 0);
    CHECK(wc.mr == NULL);
    CHECK_EQ(sim_counts().live_mrs, 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
}

static void by_call(struct ibv_pd *pd, void *buffer, int error) {
    struct ibv_mr *mr = ibv_reg_mr(pd, buffer, PAGE, ACCESS);
    struct outcome outcome;

    CHECK(mr != NULL);
    fail_next(error);
    outcome_init(&outcome);
    CHECK_EQ(amr_deregister_async(mr, outcome_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(outcome.status, error);
    CHECK(outcome.mr == mr);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    outcome_end(&outcome);
    CHECK_EQ(sim_counts().live_mrs, 1);

    outcome_init(&outcome);
    CHECK_EQ(amr_deregister_async(mr, outcome_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(outcome.status, 0);
    CHECK(outcome.mr == NULL);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    outcome_end(&outcome);
    CHECK_EQ(sim_counts().live_mrs, 0);
}

int main(void) {
    struct device device = open_sim();
    void *buffer = map_pages(PAGE);

    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        by_queue(device.pd, buffer, errors[i]);
        reset_sim();
        by_call(device.pd, buffer, errors[i]);
        reset_sim();
    }
    close_device(device);
    return 0;
}
