/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An unprivileged process under a limit on locked memory: what does not fit fails with the true
 * error and an explanation that names the limit, what fits works, and so does all once the limit
 * is raised. F1 F3 F5.
 */
#include "process.h"
#include "residency.h"

#include <sys/resource.h>

enum { KIB = 1024 };

static struct device device;
static struct amr_cq *cq;

static void set_soft_limit(rlim_t soft) {
    struct rlimit limit;

    CHECK_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    limit.rlim_cur = soft;
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

static void expect_failure(size_t length, rlim_t limit, int status) {
    char *buffer = map_pages(length);
    char text[1024], number[32];
    struct amr_wc wc;

    set_soft_limit(limit);
    /* What will fail does not cost the memory. (The simulated device itself faults it in first.) */
    if (sim_present()) {
        hold_registration(cq, reg_wr(1, device.pd, buffer, length, ACCESS));
        CHECK_EQ(resident_pages(buffer, length), 0);
        wc = release_registration(cq);
    } else {
        post_reg(cq, 1, device.pd, buffer, length);
        wc = read_wc(cq);
        CHECK_EQ(resident_pages(buffer, length), 0);
    }
    CHECK_EQ(wc.status, status);
    CHECK(wc.mr == NULL);
    CHECK_EQ(wc.diag, AMR_DIAG_MEMLOCK);
    CHECK_EQ(wc.diag_arg, length);
    CHECK(amr_explain(&wc, text, sizeof(text)) < (int)sizeof(text));
    snprintf(number, sizeof(number), "%llu", (unsigned long long)limit);
    if (strstr(text, number) == NULL || strstr(text, "ulimit -l") == NULL)
        FAIL("\"%s\" does not name the limit %s", text, number);
    CHECK_EQ(munmap(buffer, length), 0);
}

static void expect_success(size_t length, rlim_t limit) {
    char *buffer = map_pages(length);
    struct ibv_mr *mr;

    set_soft_limit(limit);
    mr = reg(cq, device.pd, buffer, length);
    CHECK_EQ(mr->length, length);
    post(cq, dereg_wr(2, mr));
    CHECK_EQ(read_wc(cq).status, 0);
    CHECK_EQ(munmap(buffer, length), 0);
}

int main(void) {
    struct rlimit limit = {128 * MIB, 128 * MIB};
    struct amr_limits limits = {.size = sizeof(limits)};

    device = open_pinning_device();
    setrlimit(RLIMIT_MEMLOCK, &limit); /* as far as this process may raise it */
    become_nobody();
    CHECK_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (limit.rlim_max < 8 * MIB)
        skip("the hard limit on locked memory is too low");
    CHECK_EQ(amr_query_limits(NULL, &limits), 0);
    CHECK_EQ(limits.cap_ipc_lock, 0);
    CHECK_EQ(limits.memlock_hard, limit.rlim_max);
    cq = new_cq(NULL, 4);

    /* F1 */
    expect_failure(MIB, 64 * KIB, ENOMEM);
    expect_success(32 * KIB, 64 * KIB);
    expect_success(MIB, 2 * MIB);
    /* F3: what container runtimes leave. */
    expect_failure(64 * MIB, 8 * MIB, ENOMEM);
    expect_success(7 * MIB, 8 * MIB);
    if (limit.rlim_max >= 128 * MIB)
        expect_success(64 * MIB, 128 * MIB);
    /* No locked memory at all is another error to the kernel. */
    expect_failure(PAGE, 0, EPERM);
    expect_success(PAGE, 64 * KIB);

    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
