/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Ranges that are not what the access needs: the kernel's error arrives, nothing stays pinned,
 * nobody crashes. F12 F17.
 */
#include "device.h"
#include "process.h"

static const size_t mib = (size_t)1 << 20;

static struct device device;
static struct amr_cq *cq;

static struct amr_wc try_reg(void *addr, size_t length, unsigned access) {
    post(cq, reg_wr(1, device.pd, addr, length, access));
    return read_wc(cq);
}

static void expect_fault(void *addr, size_t length, unsigned access, uint32_t diag, void *where) {
    long pinned = status_field("VmPin");
    struct amr_wc wc = try_reg(addr, length, access);

    CHECK_EQ(wc.status, EFAULT);
    CHECK(wc.mr == NULL);
    /* Which page it is. */
    CHECK_EQ(wc.diag, diag);
    CHECK_EQ(wc.diag_arg, (uintptr_t)where);
    CHECK_EQ(status_field("VmPin"), pinned);
}

static void expect_success(void *addr, size_t length, unsigned access) {
    struct amr_wc wc = try_reg(addr, length, access);

    CHECK_EQ(wc.status, 0);
    CHECK(wc.mr->addr == addr);
    CHECK_EQ(wc.mr->length, length);
    post(cq, dereg_wr(2, wc.mr));
    CHECK_EQ(read_wc(cq).status, 0);
}

/* F17 */
static void protected_page(void) {
    char *pages = map_pages(mib + PAGE);

    CHECK_EQ(mprotect(pages + mib, PAGE, PROT_NONE), 0);
    expect_fault(pages, mib + PAGE, ACCESS, AMR_DIAG_PROTECTION, pages + mib);
    expect_fault(pages + mib, PAGE, ACCESS, AMR_DIAG_PROTECTION, pages + mib);
    expect_fault(pages + mib - 8, 16, ACCESS, AMR_DIAG_PROTECTION, pages + mib);
    expect_success(pages, mib, ACCESS);
    CHECK_EQ(munmap(pages + PAGE, PAGE), 0);
    expect_fault(pages, mib, ACCESS, AMR_DIAG_HOLE, pages + PAGE);
    expect_success(pages, PAGE, ACCESS);
    expect_success(pages + 2 * PAGE, mib - 2 * PAGE, ACCESS);
    CHECK_EQ(munmap(pages, mib + PAGE), 0);
}

/* F12 */
static void read_only(void) {
    char *pages = map_pages(8 * PAGE);

    memset(pages, 1, 8 * PAGE);
    CHECK_EQ(mprotect(pages, 8 * PAGE, PROT_READ), 0);
    expect_success(pages, 8 * PAGE, 0);
    expect_success(pages, 8 * PAGE, IBV_ACCESS_REMOTE_READ);
    expect_fault(pages, 8 * PAGE, IBV_ACCESS_LOCAL_WRITE, AMR_DIAG_PROTECTION, pages);
    CHECK_EQ(munmap(pages, 8 * PAGE), 0);
}

static void unmapped_early(void) {
    char *pages = map_pages(mib);

    CHECK_EQ(munmap(pages, mib), 0);
    expect_fault(pages, mib, ACCESS, AMR_DIAG_HOLE, pages);
    if (!sim_present())
        return;

    /* While the request is under way. */
    pages = map_pages(mib);
    sim_gate_close(SIM_REG);
    post_reg(cq, 3, device.pd, pages, mib);
    wait_running(1);
    CHECK_EQ(munmap(pages, mib), 0);
    sim_gate_open();
    CHECK_EQ(read_wc(cq).status, EFAULT);
}

int main(void) {
    device = open_pinning_device();
    cq = new_cq(NULL, 4);
    protected_page();
    read_only();
    unmapped_early();
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
