/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the diagnosis makes of mapped files when the kernel has refused to pin them: a file of a
 * disk that would be written to is the reason, and any file on persistent memory; memory that only
 * looks like a file is not, and neither is a part of a huge page unless the error is that of fork
 * support.
 */
#include "device.h"
#include "process.h"

#include <fcntl.h>
#include <linux/mman.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum { TMPFS = 0x01021994 };

static struct device device;
static struct amr_cq *cq;

static int on_persistent_memory;

/* Takes the place of libc's. */
int statx(int folder, const char *path, int flags, unsigned mask, struct statx *found) {
    int status = (int)syscall(SYS_statx, folder, path, flags, mask, found);

    if (on_persistent_memory)
        found->stx_attributes |= STATX_ATTR_DAX;
    return status;
}

static char *map_file(int fd, size_t size, int flags, int protection) {
    char *pages = map_pages(size);

    CHECK_EQ(ftruncate(fd, (off_t)size), 0);
    CHECK(mmap(pages, size, protection, flags | MAP_FIXED, fd, 0) == pages);
    return pages;
}

static void expect(char *pages, unsigned access, const char *error, uint32_t diag, uint64_t arg) {
    char rule[64], text[1024];
    struct amr_wc wc;

    snprintf(rule, sizeof(rule), "pins=0,fail_nth=1:%s", error);
    CHECK_EQ(sim_configure(rule), 0);
    post(cq, reg_wr(1, device.pd, pages, 2 * PAGE, access));
    wc = read_wc(cq);
    CHECK_EQ(wc.diag, diag);
    CHECK_EQ(wc.diag_arg, arg);
    if (diag == AMR_DIAG_UNPINNABLE) {
        CHECK(amr_explain(&wc, text, sizeof(text)) > 0);
        CHECK(strstr(text, "there is a file (/") != NULL && strstr(text, "file system") != NULL);
    }
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

static uint64_t max_mr(void) {
    struct amr_limits limits = {.size = sizeof(limits)};

    CHECK_EQ(amr_query_limits(device.context, &limits), 0);
    return limits.max_mr;
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
    /* Of such a file the kernel would not have said ENOMEM. */
    expect(pages, ACCESS, "ENOMEM", AMR_DIAG_MAX_MR, max_mr());
    pages = map_file(fd, 2 * PAGE, MAP_SHARED, PROT_READ);
    expect(pages, ACCESS, "EFAULT", AMR_DIAG_PROTECTION, (uintptr_t)pages);
    pages = map_file(fd, 2 * PAGE, MAP_PRIVATE, both);
    expect(pages, ACCESS, "EFAULT", AMR_DIAG_RANGE, 2 * PAGE);
    expect(pages, ACCESS, "EOPNOTSUPP", AMR_DIAG_UNSUPPORTED, ACCESS);
    on_persistent_memory = 1;
    expect(pages, ACCESS, "EOPNOTSUPP", AMR_DIAG_UNPINNABLE, (uintptr_t)pages);
    on_persistent_memory = 0;
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
