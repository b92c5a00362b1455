/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Access bits reach the device as they are, whatever their combination; refused is only what the
 * InfiniBand specification forbids: remote writes and atomics need local write. F12 F13 F14.
 */
#include "device.h"

static const unsigned bits[] = {
    IBV_ACCESS_LOCAL_WRITE,   IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_MW_BIND,      IBV_ACCESS_ZERO_BASED,
    IBV_ACCESS_ON_DEMAND,     IBV_ACCESS_HUGETLB,      IBV_ACCESS_RELAXED_ORDERING,
};

static unsigned combination(size_t number) {
    unsigned access = 0;

    for (size_t i = 0; i < ARRAY_SIZE(bits); i++)
        if (number & ((size_t)1 << i))
            access |= bits[i];
    return access;
}

static int is_forbidden(unsigned access) {
    return (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 &&
           (access & IBV_ACCESS_LOCAL_WRITE) == 0;
}

/* The only call that the device saw since the last look. */
static void check_device_saw(unsigned access, void *addr, uint64_t iova) {
    struct sim_call calls[2];

    CHECK_EQ(sim_calls(calls, 2), 1);
    CHECK_EQ(calls[0].access, access);
    CHECK(calls[0].addr == addr);
    CHECK_EQ(calls[0].length, PAGE);
    CHECK_EQ(calls[0].iova, iova);
    /* An older symbol would lose or refuse the optional bits. */
    if (access & IBV_ACCESS_OPTIONAL_RANGE)
        CHECK_EQ(calls[0].symbol, SIM_IBV_REG_MR_IOVA2);
    sim_record(1);
}

static void by_queue(struct amr_cq *cq, struct ibv_pd *pd, void *buffer, unsigned access,
                     int give_iova) {
    struct amr_wr wr = reg_wr(access, pd, buffer, PAGE, access);
    uint64_t iova = (uintptr_t)buffer;
    struct amr_wc wc;

    if (give_iova) {
        iova = 64 * PAGE;
        wr.flags = AMR_WR_IOVA;
        wr.op.reg_mr.iova = iova;
    }
    sim_record(1);
    if (is_forbidden(access)) {
        CHECK_EQ(amr_post(cq, &wr, 1, NULL), EINVAL);
        return;
    }
    post(cq, wr);
    wc = read_wc(cq);
    /* Whether the device likes the combination is its own business. */
    check_device_saw(access, buffer, iova);
    if (wc.status == 0)
        CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    else
        CHECK(wc.mr == NULL);
}

static void by_call(struct ibv_pd *pd, void *buffer, unsigned access) {
    struct outcome outcome;

    outcome_init(&outcome);
    sim_record(1);
    if (is_forbidden(access)) {
        CHECK_EQ(amr_register_async(pd, buffer, PAGE, (int)access, outcome_callback, &outcome),
                 EINVAL);
        return;
    }
    CHECK_EQ(amr_register_async(pd, buffer, PAGE, (int)access, outcome_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    check_device_saw(access, buffer, (uintptr_t)buffer);
    if (outcome.status == 0)
        CHECK_EQ(ibv_dereg_mr(outcome.mr), 0);
    outcome_end(&outcome);
}

int main(void) {
    struct device device = open_sim();
    void *buffer = map_pages(PAGE);
    struct amr_cq *cq = new_cq(NULL, 4);
    uint64_t reached = 0;

    for (size_t i = 0; i < (size_t)1 << ARRAY_SIZE(bits); i++) {
        unsigned access = combination(i);

        by_queue(cq, device.pd, buffer, access, 0);
        by_queue(cq, device.pd, buffer, access, 1);
        by_call(device.pd, buffer, access);
        if (!is_forbidden(access))
            reached += 3;
    }
    CHECK_EQ(sim_counts().reg_calls, reached);

    /* A bit that no one has given a meaning yet is the device's to judge. */
    by_queue(cq, device.pd, buffer, 1u << 27, 0);
    CHECK_EQ(sim_counts().reg_calls, reached + 1);

    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
