/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Under libibverbs' fork support, a part of a huge page of hugetlbfs cannot be registered: the
 * error says so, the buffer is whole, and whole pages work. F10.
 */
#include "fork_support.h"

static const size_t huge = (size_t)2 << 20;

static void reserve_huge_pages(int count) {
    FILE *file = fopen("/proc/sys/vm/nr_hugepages", "we");

    if (file == NULL)
        skip("no right to reserve huge pages");
    fprintf(file, "%d\n", count);
    fclose(file);
}

int main(void) {
    struct device device;
    struct amr_cq *cq;
    struct amr_wc wc;
    char text[1024];
    char *pages;

    begin_fork_support();
    reserve_huge_pages(4);
    pages = (char *)mmap(NULL, 2 * huge, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (pages == MAP_FAILED)
        skip("no huge pages to be had");
    memset(pages, 1, 2 * huge);
    device = open_device();
    cq = new_cq(NULL, 4);

    post_reg(cq, 1, device.pd, pages, huge + PAGE);
    wc = read_wc(cq);
    CHECK_EQ(wc.status, EINVAL);
    CHECK(wc.mr == NULL);
    CHECK_EQ(wc.diag, AMR_DIAG_HUGEPAGE);
    CHECK_EQ(wc.diag_arg, huge);
    CHECK(amr_explain(&wc, text, sizeof(text)) > 0);
    puts(text);
    CHECK(strstr(text, "huge page") != NULL && strstr(text, "fork") != NULL);
    for (size_t i = 0; i < 2 * huge; i += PAGE)
        CHECK_EQ(pages[i], 1);

    wc.mr = reg(cq, device.pd, pages, 2 * huge);
    post(cq, dereg_wr(2, wc.mr));
    CHECK_EQ(read_wc(cq).status, 0);
    wc.mr = reg(cq, device.pd, pages + huge, huge);
    post(cq, dereg_wr(2, wc.mr));
    CHECK_EQ(read_wc(cq).status, 0);

    CHECK_EQ(munmap(pages, 2 * huge), 0);
    reserve_huge_pages(0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
