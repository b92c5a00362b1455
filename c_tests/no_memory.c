/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Out of memory and out of descriptors: the call says so, and nothing else is harmed. */
#include "device.h"
#include "process.h"

#include <sys/resource.h>

static void no_descriptors(struct amr_engine *engine) {
    struct rlimit before, limit;
    int lowest = dup(STDIN_FILENO);

    CHECK(lowest >= 0);
    close(lowest);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)lowest;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 100; i++) {
        errno = 0;
        CHECK(amr_create_cq(engine, 4) == NULL);
        CHECK_EQ(errno, EMFILE);
    }
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK_EQ(dup(STDIN_FILENO), lowest);
    close(lowest);
    CHECK_EQ(amr_destroy_cq(new_cq(engine, 4)), 0);
}

/* A queue of the largest size takes tens of megabytes. */
static void no_memory(struct amr_engine *engine) {
    struct amr_engine_attr attr = {
        .size = sizeof(attr), .workers = 1, .queue_depth = AMR_MAX_QUEUE_DEPTH};
    struct rlimit before, limit;
    int fds = count_fds();

    CHECK_EQ(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)(status_field("VmSize") + 24 * 1024) * 1024;
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    for (int i = 0; i < 10; i++) {
        errno = 0;
        CHECK(amr_create_cq(engine, AMR_MAX_CQ_CAPACITY) == NULL);
        CHECK_EQ(errno, ENOMEM);
        errno = 0;
        CHECK(amr_create_engine(&attr) == NULL);
        CHECK_EQ(errno, ENOMEM);
    }
    CHECK_EQ(setrlimit(RLIMIT_AS, &before), 0);
    wait_workers(1);
    CHECK_EQ(count_fds(), fds);
}

int main(void) {
    struct device device = open_sim();
    void *buffer = map_pages(PAGE);
    struct amr_engine *engine = new_engine(1, 4);
    struct amr_cq *cq = new_cq(engine, 4);

    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, buffer, PAGE)), 0);
    no_descriptors(engine);
    if (!SANITIZED) /* its memory is without measure */
        no_memory(engine);
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, buffer, PAGE)), 0);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
