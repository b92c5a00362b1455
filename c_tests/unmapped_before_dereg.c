/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Memory that was unmapped while registered: its deregistration still comes to an end, also where
 * libibverbs has to go through the range page by page (fork support), and leaves no pin. F35.
 */
#include "fork_support.h"
#include "process.h"

#include <time.h>

int main(void) {
    const size_t length = (size_t)256 << 20;
    struct timespec begin, end;
    struct device device;
    struct ibv_mr *mr;
    struct amr_cq *cq;
    struct amr_wc wc;
    long pinned;
    char *pages;

    begin_fork_support();
    device = open_device();
    cq = new_cq(NULL, 4);
    pinned = status_field("VmPin");
    pages = map_pages(length);
    mr = reg(cq, device.pd, pages, length);
    CHECK(is_kept_from_children(pages));
    CHECK_EQ(munmap(pages, length), 0);

    clock_gettime(CLOCK_MONOTONIC, &begin);
    post(cq, dereg_wr(1, mr));
    wc = read_wc(cq);
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%zu bytes unmapped, then deregistered: %ld ms\n", length,
           (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000);
    CHECK_EQ(wc.status, 0);
    CHECK_EQ(status_field("VmPin"), pinned);

    /* And the library goes on. */
    pages = map_pages(PAGE);
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, pages, PAGE)), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
