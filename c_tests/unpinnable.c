/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Memory that the kernel does not pin because of what it is: the diagnosis says so and where it
 * begins, to an unprivileged user too. The memory of a device is a page of a driver's.
 */
#include "device.h"
#include "process.h"

#include <fcntl.h>

/* A driver's memory next to ordinary memory: the physical memory below 1 MiB, or a ring. */
static char *map_device(void) {
    char *pages = map_pages(4 * PAGE);
    int fd = open("/dev/mem", O_RDWR | O_CLOEXEC);

    memset(pages, 1, 4 * PAGE);
    if (fd < 0 || mmap(pages + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                       0xf0000) == MAP_FAILED)
        skip("no memory of a device that can be mapped");
    close(fd);
    return pages;
}

int main(void) {
    struct device device = open_pinning_device();
    char *pages = map_device();
    struct amr_cq *cq;
    struct amr_wc wc;
    char text[1024];

    become_nobody();
    cq = new_cq(NULL, 2);
    for (unsigned i = 0; i < 2; i++) {
        post(cq, reg_wr(1, device.pd, pages, 4 * PAGE, i ? 0 : ACCESS));
        wc = read_wc(cq);
        CHECK(wc.status != 0);
        CHECK_EQ(wc.diag, AMR_DIAG_UNPINNABLE);
        CHECK_EQ(wc.diag_arg, (uintptr_t)pages + 2 * PAGE);
        CHECK(amr_explain(&wc, text, sizeof(text)) > 0);
        puts(text);
    }
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, pages, 2 * PAGE)), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
