/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An unprivileged process under a limit on locked memory: what does not fit fails with the true
 * error and an explanation that names the limit, what fits works, and so does all once the limit
 * is raised. F1 F3 F5.
 */
#include "process.h"
#include "residency.h"

#include <sched.h>
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

/* What it says of the cause beside the soft limit. */
static const char too_much[] = "The hard limit has to be raised, too";
static const char can_be_raised[] = "The process can do so itself";
static const char too_much_pinned[] = "With less pinned it would fit";
static const char other_namespace[] = "CAP_IPC_LOCK is of no effect in this user namespace";

static void expect_failure(size_t length, rlim_t limit, int status, const char *words) {
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
    puts(text);
    CHECK(strstr(text, words) != NULL);
    CHECK((strstr(text, "no CAP_IPC_LOCK") != NULL) == (words != other_namespace));
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

/* The capability counts, the limit does not. */
static void with_capability(void) {
    struct amr_limits limits = {.size = sizeof(limits)};
    struct rlimit before;

    CHECK_EQ(amr_query_limits(NULL, &limits), 0);
    if (!limits.cap_ipc_lock)
        return;
    CHECK_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    cq = new_cq(NULL, 1);
    expect_success(MIB, 64 * KIB);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

/* Root in a user namespace, as in a rootless container, has the capability in vain. */
static void in_user_namespace(void) {
    struct amr_limits limits = {.size = sizeof(limits)};
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        if (unshare(CLONE_NEWUSER) != 0) {
            puts("no user namespace to be had");
            exit_child(0);
        }
        CHECK_EQ(amr_query_limits(NULL, &limits), 0);
        CHECK_EQ(limits.cap_ipc_lock, 0);
        device = open_pinning_device();
        cq = new_cq(NULL, 1);
        expect_failure(MIB, 64 * KIB, ENOMEM, other_namespace);
        exit_child(0);
    }
    check_child(child);
}

/* What is pinned already counts. */
static void with_pins(void) {
    struct ibv_mr *mr;

    set_soft_limit(2 * MIB);
    mr = reg(cq, device.pd, map_pages(MIB), MIB);
    expect_failure(MIB + PAGE, 2 * MIB, ENOMEM, too_much_pinned);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    expect_success(MIB + PAGE, 2 * MIB);
}

int main(void) {
    struct rlimit limit = {128 * MIB, 128 * MIB};
    struct amr_limits limits = {.size = sizeof(limits)};

    device = open_pinning_device();
    with_capability();
    setrlimit(RLIMIT_MEMLOCK, &limit); /* as far as this process may raise it */
    become_nobody();
    CHECK_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (limit.rlim_max < 8 * MIB)
        skip("the hard limit on locked memory is too low");
    CHECK_EQ(amr_query_limits(NULL, &limits), 0);
    CHECK_EQ(limits.cap_ipc_lock, 0);
    CHECK_EQ(limits.memlock_hard, limit.rlim_max);
    in_user_namespace();
    cq = new_cq(NULL, 4);

    /* F1 */
    expect_failure(MIB, 64 * KIB, ENOMEM, can_be_raised);
    expect_success(32 * KIB, 64 * KIB);
    expect_success(MIB, 2 * MIB);
    /* F3: what container runtimes leave. */
    expect_failure(64 * MIB, 8 * MIB, ENOMEM, limit.rlim_max < 64 * MIB ? too_much : can_be_raised);
    expect_success(7 * MIB, 8 * MIB);
    if (limit.rlim_max >= 128 * MIB)
        expect_success(64 * MIB, 128 * MIB);
    /* No locked memory at all is another error to the kernel. */
    expect_failure(PAGE, 0, EPERM, can_be_raised);
    expect_success(PAGE, 64 * KIB);
    with_pins();
    expect_failure(limit.rlim_max + MIB, limit.rlim_max, ENOMEM, too_much);

    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
