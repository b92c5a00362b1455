/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the diagnosis makes of mapped files when the kernel has refused to pin them: a file of a
 * disk that would be written to is the reason, memory that only looks like a file is not, and
 * neither is a part of a huge page unless the error is that of fork support.
 */
#include "device.h"
#include "process.h"

#include <fcntl.h>
#include <linux/mman.h>
#include <sys/vfs.h>

enum { TMPFS = 0x01021994 };

static struct device device;
static struct amr_cq *cq;

static char *map_file(int fd, size_t size, int flags, int protection) {
    char *pages = map_pages(size);

    CHECK_EQ(ftruncate(fd, (off_t)size), 0);
    CHECK(mmap(pages, size, protection, flags | MAP_FIXED, fd, 0) == pages);
    return pages;
}

static void expect(char *pages, unsigned access, const char *error, uint32_t diag, uint64_t arg) {
    char rule[64];
    struct amr_wc wc;

    snprintf(rule, sizeof(rule), "pins=0,fail_nth=1:%s", error);
    CHECK_EQ(sim_configure(rule), 0);
    post(cq, reg_wr(1, device.pd, pages, 2 * PAGE, access));
    wc = read_wc(cq);
    CHECK_EQ(wc.diag, diag);
    CHECK_EQ(wc.diag_arg, arg);
    reset_sim();
}

/* Its own, and where no other process looks: a file of the folder that the program runs in. */
static int make_file(void) {
    char path[] = "amr-file-XXXXXX";
    struct statfs system;
    int fd = mkstemp(path);

    if (fd < 0)
        return -1;
    CHECK_EQ(fstatfs(fd, &system), 0);
    if (system.f_type != TMPFS)
        return fd; /* the diagnosis looks at the name, so it stays until the end */
    unlink(path);
    close(fd);
    return -1;
}

static void files(void) {
    const int both = PROT_READ | PROT_WRITE;
    char name[64], path[256];
    int fd = make_file();
    ssize_t length;
    char *pages;

    if (fd < 0) {
        puts("no file but on tmpfs");
        return;
    }
    pages = map_file(fd, 2 * PAGE, MAP_SHARED, both);
    expect(pages, ACCESS, "EFAULT", AMR_DIAG_UNPINNABLE, (uintptr_t)pages);
    expect(pages, IBV_ACCESS_REMOTE_READ, "EFAULT", AMR_DIAG_RANGE, 2 * PAGE);
    pages = map_file(fd, 2 * PAGE, MAP_SHARED, PROT_READ);
    expect(pages, ACCESS, "EFAULT", AMR_DIAG_PROTECTION, (uintptr_t)pages);
    pages = map_file(fd, 2 * PAGE, MAP_PRIVATE, both);
    expect(pages, ACCESS, "EFAULT", AMR_DIAG_RANGE, 2 * PAGE);
    /* Beside ordinary memory it is found where it begins. */
    pages = map_pages(2 * PAGE);
    CHECK(mmap(pages + PAGE, PAGE, both, MAP_SHARED | MAP_FIXED, fd, 0) == pages + PAGE);
    expect(pages, ACCESS, "EFAULT", AMR_DIAG_UNPINNABLE, (uintptr_t)pages + PAGE);

    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    length = readlink(name, path, sizeof(path) - 1);
    if (length > 0) {
        path[length] = '\0';
        unlink(path);
    }
    close(fd);
}

static void memory(void) {
    int fd = memfd_create("amr", MFD_CLOEXEC);
    char *pages;

    CHECK(fd >= 0);
    pages = map_file(fd, 2 * PAGE, MAP_SHARED, PROT_READ | PROT_WRITE);
    expect(pages, ACCESS, "EFAULT", AMR_DIAG_RANGE, 2 * PAGE);
    expect(pages, ACCESS, "EINVAL", AMR_DIAG_NONE, 0);
    close(fd);
}

static void huge_pages(void) {
    const size_t huge = (size_t)2 << 20;
    char *pages = (char *)mmap(
        NULL, huge, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE | (21 << MAP_HUGE_SHIFT), -1, 0);

    if (pages == MAP_FAILED) {
        puts("no huge pages to be had");
        return;
    }
    expect(pages, ACCESS, "EINVAL", AMR_DIAG_HUGEPAGE, huge);
    expect(pages, ACCESS, "EFAULT", AMR_DIAG_RANGE, 2 * PAGE);
    CHECK_EQ(munmap(pages, huge), 0);
}

int main(void) {
    device = open_sim();
    cq = new_cq(NULL, 2);
    files();
    memory();
    huge_pages();
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
