/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Limits are what the kernel and the device say. */
#include "device.h"
#include "process.h"

#include <sys/resource.h>
#include <sys/stat.h>

enum { MAPPINGS = 50 };

static struct amr_limits limits_of(struct ibv_context *context) {
    struct amr_limits limits = {.size = sizeof(limits)};

    CHECK_EQ(amr_query_limits(context, &limits), 0);
    return limits;
}

static uint64_t number_in(const char *path) {
    FILE *file = fopen(path, "re");
    unsigned long long number;

    CHECK(file != NULL);
    CHECK_EQ(fscanf(file, "%llu", &number), 1);
    fclose(file);
    return number;
}

/* Which is all that matters to the kernel: CAP_IPC_LOCK in the first user namespace. */
static int has_ipc_lock(void) {
    FILE *file = fopen("/proc/self/status", "re");
    unsigned long long effective = 0;
    struct stat namespace;
    char line[256];

    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL)
        sscanf(line, "CapEff: %llx", &effective);
    fclose(file);
    CHECK_EQ(stat("/proc/self/ns/user", &namespace), 0);
    return namespace.st_ino == 0xeffffffd && (effective >> 14 & 1);
}

static void memlock(void) {
    struct rlimit rlimit, before;

    CHECK_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    rlimit.rlim_max = before.rlim_max;
    rlimit.rlim_cur = 3 * PAGE;
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &rlimit), 0);
    CHECK_EQ(limits_of(NULL).memlock_soft, 3 * PAGE);
    CHECK_EQ(limits_of(NULL).memlock_hard, before.rlim_max);
    CHECK_EQ(RLIM_INFINITY, UINT64_MAX);
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    CHECK_EQ(limits_of(NULL).memlock_soft, before.rlim_cur);
}

static void mappings(void) {
    uint64_t count = limits_of(NULL).map_count;
    char *pages;

    CHECK(count > 5);
    pages = map_pages(2 * MAPPINGS * PAGE);
    for (size_t i = 0; i < MAPPINGS; i++)
        CHECK_EQ(mprotect(pages + 2 * i * PAGE, PAGE, PROT_READ), 0);
    /* Each protected page is a mapping, and so is each page between two. */
    CHECK(limits_of(NULL).map_count >= count + 2 * MAPPINGS - 1);
    CHECK(limits_of(NULL).map_count <= count + 2 * MAPPINGS + 1);
    CHECK_EQ(limits_of(NULL).max_map_count, number_in("/proc/sys/vm/max_map_count"));
}

static void locked(void) {
    char *pages = map_pages(8 * PAGE);
    uint64_t before = limits_of(NULL).locked;

    /* Not by the function, which sanitizers make do nothing. */
    CHECK_EQ(syscall(SYS_mlock, pages, 8 * PAGE), 0);
    CHECK_EQ(limits_of(NULL).locked, before + 8 * PAGE);
    CHECK_EQ(syscall(SYS_munlock, pages, 8 * PAGE), 0);
    CHECK_EQ(limits_of(NULL).locked, before);
}

static void pinned(struct ibv_pd *pd) {
    size_t length = 64 * PAGE;
    struct ibv_mr *mr;
    uint64_t before;

    if (sim_present() && !sim_can_pin())
        return;
    mr = ibv_reg_mr(pd, map_pages(length), length, ACCESS);
    CHECK(mr != NULL);
    before = limits_of(NULL).pinned;
    CHECK(before >= length);
    CHECK_EQ(before, (uint64_t)status_field("VmPin") * 1024);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(limits_of(NULL).pinned, before - length);
}

static void device_limits(struct ibv_context *context) {
    struct ibv_device_attr attr;

    CHECK_EQ(ibv_query_device(context, &attr), 0);
    CHECK_EQ(limits_of(context).max_mr, attr.max_mr);
    CHECK_EQ(limits_of(context).max_mr_size, attr.max_mr_size);
    CHECK(attr.max_mr > 0 && attr.max_mr_size > 0);
    CHECK_EQ(limits_of(NULL).max_mr, 0);
    CHECK_EQ(limits_of(NULL).max_mr_size, 0);
}

int main(void) {
    struct device device = open_device();

    CHECK_EQ(limits_of(NULL).page_size, sysconf(_SC_PAGESIZE));
    CHECK_EQ(limits_of(NULL).cap_ipc_lock, has_ipc_lock());
    memlock();
    mappings();
    locked();
    pinned(device.pd);
    device_limits(device.context);
    close_device(device);
    return 0;
}
