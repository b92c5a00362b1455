/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The device's error arrives as it is, at once, for each request; no request is lost. F5 F6 F8. */
#include "device.h"

static struct device device;
static char *buffer;

static void fail_all(int error) {
    char rule[64];

    snprintf(rule, sizeof(rule), "fail_after=0:%d", error);
    CHECK_EQ(sim_configure(rule), 0);
}

/* One call, no second attempt, whatever the error. */
static void verbatim(struct amr_cq *cq) {
    static const int errors[] = {
        EPERM,     ENOENT,     EIO,       ENXIO,  E2BIG,  EBADF,  ENOMEM, EACCES,
        EFAULT,    EBUSY,      EEXIST,    ENODEV, EINVAL, EMFILE, ENOSPC, ENOSYS,
        EOVERFLOW, EOPNOTSUPP, ETIMEDOUT, ESTALE, 133,    4095,
    };

    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        struct outcome outcome;
        struct amr_wc wc;

        fail_all(errors[i]);
        post_reg(cq, i, device.pd, buffer, PAGE);
        wc = read_wc(cq);
        CHECK_EQ(wc.status, errors[i]);
        CHECK_EQ(wc.wr_id, i);
        CHECK(wc.mr == NULL);

        outcome_init(&outcome);
        CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, outcome_callback, &outcome),
                 0);
        outcome_wait(&outcome);
        CHECK_EQ(outcome.status, errors[i]);
        CHECK(outcome.mr == NULL);
        CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
        outcome_end(&outcome);
        CHECK_EQ(sim_counts().reg_calls, 2);
        reset_sim();
    }
}

/* A provider that fails and does not say why. */
static void no_errno(struct amr_cq *cq) {
    struct amr_wc wc;

    fail_all(0);
    post_reg(cq, 1, device.pd, buffer, PAGE);
    wc = read_wc(cq);
    CHECK_EQ(wc.status, EIO);
    CHECK(wc.mr == NULL);
    reset_sim();
}

/* What a successful call leaves in errno is not its error. */
static void leftover_errno(struct amr_cq *cq) {
    struct amr_wc wc;

    CHECK_EQ(sim_configure("clobber"), 0);
    for (int i = 0; i < 100; i++) {
        struct ibv_mr *mr = reg(cq, device.pd, buffer, PAGE);

        post(cq, dereg_wr(1, mr));
        wc = read_wc(cq);
        CHECK_EQ(wc.status, 0);
        CHECK(wc.mr == NULL);
    }
    reset_sim();
}

/* F6: memory runs out in the middle of a batch. */
static void some_of_a_batch(struct amr_cq *cq) {
    struct amr_wr wr[64];
    struct amr_wc wc[64];
    uint64_t seen = 0;
    int failed = 0;

    CHECK_EQ(sim_configure("fail_after=10:ENOMEM"), 0);
    for (size_t i = 0; i < 64; i++)
        wr[i] = reg_wr(i, device.pd, buffer, PAGE, ACCESS);
    CHECK_EQ(amr_post(cq, wr, 64, NULL), 0);
    read_wcs(cq, wc, 64);
    for (int i = 0; i < 64; i++) {
        seen |= UINT64_C(1) << wc[i].wr_id;
        if (wc[i].status == 0) {
            CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
        } else {
            CHECK_EQ(wc[i].status, ENOMEM);
            CHECK(wc[i].mr == NULL);
            failed++;
        }
    }
    CHECK_EQ(seen, UINT64_MAX);
    CHECK_EQ(failed, 54);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    check_empty(cq);
    CHECK_EQ(sim_counts().reg_calls, 64);
    reset_sim();
}

/* F8: a region that is too long for the device is not made shorter in silence. */
static void too_long(struct amr_cq *cq) {
    size_t length = ((size_t)2 << 30) + 1;
    void *large = mmap(NULL, length, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct sim_call calls[2];
    struct amr_wc wc;

    CHECK(large != MAP_FAILED);
    CHECK_EQ(sim_configure("max_mr_size=1g"), 0);
    sim_record(1);
    post_reg(cq, 1, device.pd, large, length);
    wc = read_wc(cq);
    CHECK_EQ(wc.status, EINVAL);
    CHECK(wc.mr == NULL);
    CHECK_EQ(wc.diag, AMR_DIAG_MAX_MR_SIZE);
    CHECK_EQ(wc.diag_arg, UINT64_C(1) << 30);
    CHECK_EQ(sim_calls(calls, 2), 1);
    CHECK_EQ(calls[0].length, length);
    CHECK_EQ(munmap(large, length), 0);
    reset_sim();
}

int main(void) {
    struct amr_cq *cq;

    device = open_sim();
    buffer = map_pages(PAGE);
    cq = new_cq(NULL, 64);
    verbatim(cq);
    no_errno(cq);
    leftover_errno(cq);
    some_of_a_batch(cq);
    too_long(cq);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
