/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Every verbs call of a piece of work fails in turn, with every error there may be, and so do all
 * from the nth on: each request completes once, with that error or after another attempt with
 * success, and no region is left.
 */
#include "device.h"

enum { REQUESTS = 6 };

static const int errors[] = {EPERM, EINTR,  EIO,    ENXIO,  EAGAIN, ENOMEM,     EACCES,   EFAULT,
                             EBUSY, ENODEV, EINVAL, ENOSPC, ENOSYS, EOPNOTSUPP, ETIMEDOUT};

static struct device device;
static struct amr_engine *engine;
static struct amr_cq *cq;
static char *buffer;

/* Each of the ids 0 to count - 1 once, with success or that error. Says how many failed. */
static int collect(struct amr_wc *wcs, int count, int error, uint32_t opcode) {
    unsigned seen = 0;
    int failed = 0;

    read_wcs(cq, wcs, count);
    check_empty(cq);
    for (int i = 0; i < count; i++) {
        CHECK(wcs[i].wr_id < REQUESTS && (seen & 1U << wcs[i].wr_id) == 0);
        seen |= 1U << wcs[i].wr_id;
        CHECK_EQ(wcs[i].opcode, opcode);
        if (wcs[i].status != 0 && wcs[i].status != error)
            FAIL("status %d, expected %d", wcs[i].status, error);
        CHECK((wcs[i].mr != NULL) == ((opcode == AMR_OP_REG_MR) == (wcs[i].status == 0)));
        failed += wcs[i].status != 0;
    }
    return failed;
}

static int is_transient(int error) {
    return error == EAGAIN || error == EINTR;
}

static void registrations(const char *rule, int error, int first, int last) {
    struct amr_wc wcs[REQUESTS];
    int failed, expected = last - first + 1;

    CHECK_EQ(sim_configure(rule), 0);
    for (uint64_t i = 0; i < REQUESTS; i++)
        post_reg(cq, i, device.pd, buffer, PAGE);
    failed = collect(wcs, REQUESTS, error, AMR_OP_REG_MR);
    if (!is_transient(error))
        CHECK_EQ(failed, expected);
    else if (strstr(rule, "_nth=") != NULL)
        CHECK_EQ(failed, 0);
    CHECK_EQ(sim_counts().live_mrs, REQUESTS - failed);
    for (int i = 0; i < REQUESTS; i++)
        if (wcs[i].mr != NULL)
            CHECK_EQ(ibv_dereg_mr(wcs[i].mr), 0);
    reset_sim();
}

static void deregistrations(const char *rule, int error, int first, int last) {
    struct amr_wc wcs[REQUESTS];
    int failed, expected = last - first + 1;

    for (uint64_t i = 0; i < REQUESTS; i++)
        post_reg(cq, i, device.pd, buffer, PAGE);
    CHECK_EQ(collect(wcs, REQUESTS, 0, AMR_OP_REG_MR), 0);
    CHECK_EQ(sim_configure(rule), 0);
    for (uint64_t i = 0; i < REQUESTS; i++)
        post(cq, dereg_wr(i, wcs[i].mr));
    failed = collect(wcs, REQUESTS, error, AMR_OP_DEREG_MR);
    if (!is_transient(error))
        CHECK_EQ(failed, expected);
    else if (strstr(rule, "_nth=") != NULL)
        CHECK_EQ(failed, 0);
    CHECK_EQ(sim_counts().live_mrs, failed);
    reset_sim();
    /* What has failed is alive, and can be posted again. */
    for (int i = 0; i < REQUESTS; i++) {
        if (wcs[i].mr == NULL)
            continue;
        post(cq, dereg_wr(0, wcs[i].mr));
        CHECK_EQ(read_wc(cq).status, 0);
    }
}

int main(void) {
    char rule[64];

    device = open_sim();
    CHECK_EQ(sim_configure("pins=0"), 0);
    buffer = map_pages(PAGE);
    engine = new_engine(2, 16);
    cq = new_cq(engine, REQUESTS);
    for (size_t e = 0; e < ARRAY_SIZE(errors); e++)
        for (int n = 1; n <= REQUESTS; n++) {
            snprintf(rule, sizeof(rule), "pins=0,fail_nth=%d:%d", n, errors[e]);
            registrations(rule, errors[e], n, n);
            snprintf(rule, sizeof(rule), "pins=0,fail_after=%d:%d", n - 1, errors[e]);
            registrations(rule, errors[e], n, REQUESTS);
            snprintf(rule, sizeof(rule), "dereg_fail_nth=%d:%d", n, errors[e]);
            deregistrations(rule, errors[e], n, n);
            snprintf(rule, sizeof(rule), "dereg_fail_after=%d:%d", n - 1, errors[e]);
            deregistrations(rule, errors[e], n, REQUESTS);
        }
    CHECK_EQ(stats_of(engine).submitted, stats_of(engine).completed);
    CHECK_EQ(sim_counts().live_mrs, 0);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
