/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Ctrl-C while a large region is being deregistered: the process ends by the signal, and what was
 * pinned is free again. The kernel takes its time for the pages; libamr adds no wait. F49.
 */
#include "device.h"
#include "process.h"

static const size_t length = (size_t)512 << 20;

__attribute__((noreturn)) static void child(int ready) {
    struct device device = open_device();
    struct amr_cq *cq = new_cq(NULL, 1);
    struct ibv_mr *mr = reg(cq, device.pd, map_pages(length), length);

    signal(SIGINT, SIG_DFL); /* a shell's background processes ignore it */
    post(cq, dereg_wr(1, mr));
    CHECK_EQ(write(ready, "r", 1), 1);
    for (;;)
        pause();
}

int main(void) {
    struct device device;
    int pipes[2], status;
    char letter;
    pid_t pid;

    CHECK_EQ(pipe(pipes), 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(pipes[1]);
    close(pipes[1]);
    CHECK_EQ(read(pipes[0], &letter, 1), 1);
    CHECK_EQ(kill(pid, SIGINT), 0);
    status = wait_child(pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);

    /* The device is as before. */
    device = open_device();
    close_device(device);
    return 0;
}
