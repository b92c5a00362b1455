/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Where the kernel refuses each command: for want of permission, and since the device is gone. A
 * filter of seccomp(2) says so here, to a real libibverbs and an unprivileged user. It is what a
 * container may have; and EIO is what the kernel says on a device that it has cut off
 * (ib_uverbs_ioctl() in drivers/infiniband/core/uverbs_ioctl.c), which it does not do with one of
 * Soft-RoCE (device_removed.c).
 */
#include "device.h"
#include "process.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stddef.h>
#include <sys/prctl.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* Goes on after so many instructions if it is not that. */
#define UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, action)

/* In all threads. The last filter counts. */
static void refuse_commands(int fd, int status) {
    const unsigned refusal = SECCOMP_RET_ERRNO | (unsigned)status;
    struct sock_filter filter[] = {
        LOAD(nr),
        UNLESS(SYS_ioctl, 3),
        LOAD(args[1]),
        UNLESS((unsigned)RDMA_VERBS_IOCTL, 6),
        RETURN(refusal),
        /* Old kernels take commands by write(2). */
        LOAD(nr),
        UNLESS(SYS_write, 3),
        LOAD(args[0]),
        UNLESS((unsigned)fd, 1),
        RETURN(refusal),
        RETURN(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {ARRAY_SIZE(filter), filter};

    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        FAIL("seccomp: %s", strerror(errno));
}

int main(void) {
    static const struct {
        int status;
        uint32_t diag;
        const char *words;
    } refusals[] = {
        {EPERM, AMR_DIAG_PERMISSION, "there is no permission (errno 1)"},
        {EACCES, AMR_DIAG_PERMISSION, "there is no permission (errno 13)"},
        {EIO, AMR_DIAG_DEVICE_GONE, "was removed or reset"},
        {ENODEV, AMR_DIAG_DEVICE_GONE, "was removed or reset"},
    };
    struct device device = open_device();
    struct amr_cq *cq;

    become_nobody();
    cq = new_cq(NULL, 1);
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, map_pages(PAGE), PAGE)), 0);
    for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
        struct amr_wc wc;
        char text[1024];

        refuse_commands(device.context->cmd_fd, refusals[i].status);
        post_reg(cq, 1, device.pd, map_pages(PAGE), PAGE);
        wc = read_wc(cq);
        CHECK_EQ(wc.status, refusals[i].status);
        CHECK_EQ(wc.diag, refusals[i].diag);
        CHECK(amr_explain(&wc, text, sizeof(text)) < (int)sizeof(text));
        puts(text);
        CHECK(strstr(text, refusals[i].words) != NULL);
    }
    /* The device can be closed no more, but for the end of the process. */
    CHECK_EQ(amr_destroy_cq(cq), 0);
    return 0;
}
