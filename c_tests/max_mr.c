/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * No region more: a control group allows none, for which the kernel says EAGAIN, or the device has
 * no key left, for which an unprivileged user hears of the limit, too.
 */
#include "device.h"
#include "process.h"

#include <sys/stat.h>

static struct device device;
static struct amr_cq *cq;
static void *page;

/* Returns whether that could be done. */
static int write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "we");

    return file != NULL && (fputs(text, file), fclose(file) == 0);
}

static void expect_failure(int status, uint32_t diag, uint64_t diag_arg, const char *words) {
    struct amr_wc wc;
    char text[1024];

    post_reg(cq, 1, device.pd, page, PAGE);
    wc = read_wc(cq);
    CHECK_EQ(wc.status, status);
    CHECK_EQ(wc.diag, diag);
    CHECK_EQ(wc.diag_arg, diag_arg);
    CHECK(amr_explain(&wc, text, sizeof(text)) < (int)sizeof(text));
    puts(text);
    CHECK(strstr(text, words) != NULL);
}

#define GROUPS "/sys/fs/cgroup"
#define GROUP GROUPS "/amr-max-mr"

/* What is allowed is counted for the group in which the device was opened. */
static void control_group(void) {
    char limit[64];
    struct ibv_mr *mr;

    CHECK(mkdir(GROUP, 0755) == 0 || errno == EEXIST);
    if (!write_file(GROUPS "/cgroup.subtree_control", "+rdma"))
        skip("no control groups for RDMA");
    CHECK(write_file(GROUP "/cgroup.procs", "0"));
    device = open_device();
    snprintf(limit, sizeof(limit), "%s hca_object=2", ibv_get_device_name(device.context->device));
    CHECK(write_file(GROUP "/rdma.max", limit)); /* the PD and one region */
    mr = reg(cq, device.pd, page, PAGE);
    expect_failure(EAGAIN, AMR_DIAG_NONE, 0, "rdma.max");
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, page, PAGE)), 0);
    close_device(device);
    CHECK(write_file(GROUPS "/cgroup.procs", "0"));
    CHECK_EQ(rmdir(GROUP), 0);
}

static void keys(void) {
    struct amr_limits limits = {.size = sizeof(limits)};
    struct ibv_mr *mr, *last = NULL;
    uint64_t count = 0;
    char words[32];

    device = open_device();
    become_nobody();
    CHECK_EQ(amr_query_limits(device.context, &limits), 0);
    snprintf(words, sizeof(words), "of which it has %llu", (unsigned long long)limits.max_mr);
    while ((mr = ibv_reg_mr(device.pd, page, PAGE, ACCESS)) != NULL) {
        last = mr;
        count++;
    }
    printf("%llu regions of %llu\n", (unsigned long long)count, (unsigned long long)limits.max_mr);
    expect_failure(ENOMEM, AMR_DIAG_MAX_MR, limits.max_mr, words);
    CHECK_EQ(ibv_dereg_mr(last), 0);
    reg(cq, device.pd, page, PAGE);
    /* The kernel ends them with the process. */
}

int main(void) {
    page = map_pages(PAGE);
    cq = new_cq(NULL, 1);
    control_group();
    keys();
    CHECK_EQ(amr_destroy_cq(cq), 0);
    return 0;
}
