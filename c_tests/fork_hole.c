/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Under libibverbs' fork support, a range with a hole is an error, and what lies around it is left
 * alone: libamr never makes a range larger. F18; what was seen with Linux 6.1 and rdma-core 44:
 * ENOMEM, from madvise(), where the same range without fork support is EFAULT (hole.c). libibverbs
 * leaves the pages of the range, up to the hole and beyond it, kept from children.
 */
#include "fork_support.h"
#include "process.h"

int main(void) {
    struct device device;
    struct amr_cq *cq;
    struct amr_wc wc;
    long pinned;
    char *pages;

    begin_fork_support();
    device = open_device();
    cq = new_cq(NULL, 4);
    pages = map_pages(8 * PAGE);
    memset(pages, 1, 8 * PAGE);

    /* Only the region itself is kept from children, and only while it is one. */
    wc.mr = reg(cq, device.pd, pages + PAGE, 6 * PAGE);
    CHECK(is_kept_from_children(pages + PAGE));
    CHECK(!is_kept_from_children(pages));
    CHECK(!is_kept_from_children(pages + 7 * PAGE));
    post(cq, dereg_wr(2, wc.mr));
    CHECK_EQ(read_wc(cq).status, 0);
    CHECK(!is_kept_from_children(pages + PAGE));

    CHECK_EQ(munmap(pages + 4 * PAGE, PAGE), 0);
    pinned = status_field("VmPin");

    post_reg(cq, 1, device.pd, pages + PAGE, 6 * PAGE);
    wc = read_wc(cq);
    printf("a hole under fork support: %s\n", strerrorname_np(wc.status));
    CHECK(wc.status == ENOMEM || wc.status == EFAULT);
    CHECK(wc.mr == NULL);
    CHECK_EQ(wc.diag, AMR_DIAG_HOLE);
    CHECK_EQ(wc.diag_arg, (uintptr_t)pages + 4 * PAGE);
    CHECK_EQ(status_field("VmPin"), pinned);
    CHECK(!is_kept_from_children(pages));
    CHECK(!is_kept_from_children(pages + 7 * PAGE));
    CHECK_EQ(pages[0], 1);
    CHECK_EQ(pages[7 * PAGE], 1);

    /* What is whole still works. */
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, pages + PAGE, 2 * PAGE)), 0);
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, pages + 5 * PAGE, 2 * PAGE)), 0);

    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
