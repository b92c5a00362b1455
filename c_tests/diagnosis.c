/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the library finds out about a failure. (memlock.c and map_count.c are about two more.) F8
 * F22. */
#include "device.h"

static struct device device;
static struct amr_cq *cq;
static char *buffer;

static struct amr_wc failed_reg(unsigned access) {
    struct amr_wc wc;

    post(cq, reg_wr(1, device.pd, buffer, 2 * PAGE, access));
    wc = read_wc(cq);
    CHECK(wc.status != 0);
    CHECK(wc.mr == NULL);
    return wc;
}

static void expect(const char *rule, uint32_t diag, uint64_t diag_arg) {
    struct amr_wc wc;

    if (rule != NULL)
        CHECK_EQ(sim_configure(rule), 0);
    wc = failed_reg(ACCESS);
    if (wc.diag != diag || wc.diag_arg != diag_arg)
        FAIL("%s: diag %u (%llu), expected %u (%llu)", rule, wc.diag,
             (unsigned long long)wc.diag_arg, diag, (unsigned long long)diag_arg);
    reset_sim();
}

static void keys_used_up(void) {
    struct ibv_mr *mr = reg(cq, device.pd, buffer, PAGE);

    CHECK_EQ(sim_configure("max_mr=1"), 0);
    expect(NULL, AMR_DIAG_MAX_MR, 1);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void unsupported(unsigned access) {
    struct amr_wc wc;

    CHECK_EQ(sim_configure("fail_nth=1:EINVAL"), 0);
    wc = failed_reg(access);
    CHECK_EQ(wc.diag, AMR_DIAG_UNSUPPORTED);
    CHECK_EQ(wc.diag_arg, access);
    reset_sim();
}

int main(void) {
    struct ibv_device_attr attr;
    struct amr_wc wc;

    device = open_sim();
    buffer = map_pages(2 * PAGE);
    cq = new_cq(NULL, 1);
    CHECK_EQ(ibv_query_device(device.context, &attr), 0);

    expect("fail_nth=1:EFAULT", AMR_DIAG_RANGE, 2 * PAGE);
    expect("fail_nth=1:EOPNOTSUPP", AMR_DIAG_UNSUPPORTED, ACCESS);
    expect("fail_nth=1:ENOMEM", AMR_DIAG_MAX_MR, (uint64_t)attr.max_mr);
    expect("fail_nth=1:EINVAL", AMR_DIAG_NONE, 0);
    expect("fail_nth=1:EIO", AMR_DIAG_NONE, 0);
    expect("fail_nth=1:ENODEV", AMR_DIAG_NONE, 0);
    expect("gone=1", AMR_DIAG_DEVICE_GONE, 0);
    expect("fail_nth=1:EACCES", AMR_DIAG_PERMISSION, 0);
    expect("fail_nth=1:EPERM", AMR_DIAG_PERMISSION, 0);
    expect("fail_nth=1:0", AMR_DIAG_NONE, 0);
    expect("max_mr_size=4k", AMR_DIAG_MAX_MR_SIZE, PAGE);
    expect("max_mr_size=4k,fail_nth=1:ENOMEM", AMR_DIAG_MAX_MR_SIZE, PAGE);
    keys_used_up();

    /* The device of today has no on-demand paging. */
    wc = failed_reg(ACCESS | IBV_ACCESS_ON_DEMAND);
    CHECK_EQ(wc.status, EOPNOTSUPP);
    CHECK_EQ(wc.diag, AMR_DIAG_UNSUPPORTED);
    CHECK_EQ(wc.diag_arg, ACCESS | IBV_ACCESS_ON_DEMAND);

    /* So do drivers say that do not know such access. */
    unsupported(ACCESS | IBV_ACCESS_ON_DEMAND);
    unsupported(ACCESS | IBV_ACCESS_MW_BIND);

    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
