/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Faulting in behaves as the plain call would, whatever is mapped: memory that is shared, that may
 * only be read, files, holes, and memory that goes away meanwhile.
 */
#include "process.h"
#include "residency.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t length = 8 * MIB;

static struct device device;
static struct amr_cq *cq;

static struct amr_wc try_reg(void *addr, unsigned access) {
    struct amr_wc wc;

    post(cq, reg_wr(1, device.pd, addr, length, access));
    wc = read_wc(cq);
    if (wc.status == 0)
        CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    return wc;
}

/* What the plain call says of it. */
static int plain_status(void *addr, unsigned access) {
    struct ibv_mr *mr = ibv_reg_mr(device.pd, addr, length, (int)access);

    if (mr == NULL)
        return errno;
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    return 0;
}

static void *map_file(int fd, int protection, int flags) {
    void *pages = mmap(NULL, length, protection, flags, fd, 0);

    CHECK(pages != MAP_FAILED);
    return pages;
}

static int empty_file(void) {
    char path[] = "/var/tmp/amr-XXXXXX";
    int fd = mkstemp(path);

    CHECK(fd >= 0);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(ftruncate(fd, (off_t)length), 0);
    return fd;
}

static void shared_memory(void) {
    int fd = memfd_create("amr", MFD_CLOEXEC);
    char *pages;

    CHECK(fd >= 0);
    CHECK_EQ(ftruncate(fd, (off_t)length), 0);
    pages = map_file(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
    CHECK_EQ(try_reg(pages, ACCESS).status, 0);
    CHECK_EQ(resident_pages(pages, length), length / PAGE);
    CHECK_EQ(munmap(pages, length), 0);
    CHECK_EQ(close(fd), 0);

    pages = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    CHECK_EQ(try_reg(pages, ACCESS).status, 0);
    CHECK_EQ(munmap(pages, length), 0);
}

static void memory_that_is_read(void) {
    char *pages = map_pages(length);

    memset(pages, 7, length / 2);
    CHECK_EQ(mprotect(pages, length, PROT_READ), 0);
    CHECK_EQ(try_reg(pages, 0).status, 0);
    CHECK_EQ(try_reg(pages, IBV_ACCESS_REMOTE_READ).status, 0);
    CHECK_EQ(try_reg(pages, IBV_ACCESS_LOCAL_WRITE).status, EFAULT);
    for (size_t i = 0; i < length; i++)
        CHECK_EQ(pages[i], i < length / 2 ? 7 : 0);
    CHECK_EQ(munmap(pages, length), 0);
}

/* libamr writes to no file: before the device is called the file still has no block. */
static void files(void) {
    int fd = empty_file();
    char *shared = map_file(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
    char *private = map_file(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    char *readable = map_file(fd, PROT_READ, MAP_PRIVATE);
    struct stat stat;

    CHECK_EQ(try_reg(readable, 0).status, plain_status(readable, 0));
    CHECK_EQ(try_reg(private, ACCESS).status, plain_status(private, ACCESS));
    if (sim_present()) {
        hold_registration(cq, reg_wr(1, device.pd, shared, length, ACCESS));
        CHECK_EQ(fstat(fd, &stat), 0);
        CHECK_EQ(stat.st_blocks, 0);
        release_registration(cq);
    }
    CHECK_EQ(try_reg(shared, ACCESS).status, plain_status(shared, ACCESS));
    CHECK_EQ(munmap(shared, length), 0);
    CHECK_EQ(munmap(private, length), 0);
    CHECK_EQ(munmap(readable, length), 0);
    CHECK_EQ(close(fd), 0);
}

static void holes(void) {
    char *pages = map_pages(length);
    long pinned = status_field("VmPin");

    CHECK_EQ(munmap(pages + length / 2, PAGE), 0);
    CHECK_EQ(try_reg(pages, ACCESS).status, EFAULT);
    CHECK_EQ(status_field("VmPin"), pinned);
    CHECK_EQ(munmap(pages, length), 0);

    pages = map_pages(length);
    CHECK_EQ(mprotect(pages + length - PAGE, PAGE, PROT_NONE), 0);
    CHECK_EQ(try_reg(pages, ACCESS).status, EFAULT);
    CHECK_EQ(status_field("VmPin"), pinned);
    CHECK_EQ(munmap(pages, length), 0);
}

/* More mappings than are told apart. */
static void many_mappings(void) {
    char *pages = map_pages(length);

    for (size_t i = 0; i < length; i += 2 * (length / 64))
        CHECK_EQ(mprotect(pages + i, length / 64, PROT_READ), 0);
    CHECK_EQ(try_reg(pages, 0).status, 0);
    CHECK_EQ(try_reg(pages, ACCESS).status, EFAULT);
    CHECK_EQ(munmap(pages, length), 0);
}

static void unmapped_meanwhile(void) {
    for (int round = 0; round < 40; round++) {
        char *pages = map_pages(length);
        struct amr_wc wc;

        post_reg(cq, 1, device.pd, pages, length);
        CHECK_EQ(munmap(pages + length / 2, length / 2), 0);
        wc = read_wc(cq);
        CHECK(wc.status == 0 || wc.status == EFAULT);
        if (wc.status == 0)
            CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
        CHECK_EQ(munmap(pages, length / 2), 0);
    }
}

int main(void) {
    device = open_pinning_device();
    cq = new_cq(NULL, 4);
    shared_memory();
    memory_that_is_read();
    files();
    holes();
    many_mappings();
    unmapped_meanwhile();
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
