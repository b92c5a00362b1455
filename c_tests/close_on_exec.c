/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* No descriptor of the library's gets into a program that this one executes. */
#include "device.h"
#include "process.h"

#include <fcntl.h>

enum { MOST = 1024 };

int main(void) {
    struct device device = open_sim();
    void *buffer = map_pages(PAGE);
    char before[MOST] = {0};
    struct amr_engine *engine;
    struct amr_cq *cq, *other;
    int found = 0;

    for (int fd = 0; fd < MOST; fd++)
        before[fd] = fcntl(fd, F_GETFD) != -1;
    engine = new_engine(2, 0);
    cq = new_cq(engine, 4);
    other = new_cq(NULL, 4);
    CHECK(amr_cq_fd(cq) >= 0);
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, buffer, PAGE)), 0);
    CHECK_EQ(ibv_dereg_mr(reg(other, device.pd, buffer, PAGE)), 0);
    for (int fd = 0; fd < MOST; fd++) {
        int flags = fcntl(fd, F_GETFD);

        if (flags == -1 || before[fd])
            continue;
        CHECK_EQ(flags & FD_CLOEXEC, FD_CLOEXEC);
        found++;
    }
    CHECK(found >= 1);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_cq(other), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
