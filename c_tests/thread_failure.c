/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Threads that cannot be made: EAGAIN, nothing is left behind, and later it works. F57. */
#include "device.h"
#include "process.h"

#include <sys/resource.h>

static void never(struct ibv_mr *mr, int status, void *ctx) {
    (void)mr;
    FAIL("callback of a refused request, status %d, ctx %p", status, ctx);
}

static void limit_threads(rlim_t count) {
    struct rlimit limit;

    CHECK_EQ(getrlimit(RLIMIT_NPROC, &limit), 0);
    limit.rlim_cur = count;
    CHECK_EQ(setrlimit(RLIMIT_NPROC, &limit), 0);
}

static void check_failure(uint32_t workers) {
    struct amr_engine_attr attr = {.size = sizeof(attr), .workers = workers};
    int fds = count_fds();

    errno = 0;
    CHECK(amr_create_engine(&attr) == NULL);
    CHECK_EQ(errno, EAGAIN);
    wait_workers(0);
    CHECK_EQ(count_fds(), fds);
}

int main(void) {
    struct device device;
    void *buffer;
    struct amr_engine *engine;
    struct outcome outcome;

    CHECK_EQ(setenv("AMR_WORKERS", "4", 1), 0);
    device = open_sim();
    buffer = map_pages(PAGE);
    become_nobody();
    if (geteuid() == 0)
        skip("root has no limit on threads");

    /* The main thread counts as well. */
    limit_threads(3);
    check_failure(3);
    check_failure(8);
    limit_threads(1);
    for (int i = 0; i < 100; i++)
        check_failure(1 + (uint32_t)i % 9);

    errno = 0;
    CHECK(amr_default_engine() == NULL);
    CHECK_EQ(errno, EAGAIN);
    CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, never, NULL), EAGAIN);
    errno = 0;
    CHECK(amr_create_cq(NULL, 1) == NULL);
    CHECK_EQ(errno, EAGAIN);
    wait_workers(0);

    limit_threads(16);
    engine = new_engine(8, 0);
    CHECK_EQ(count_workers(), 8);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    outcome_init(&outcome);
    CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, outcome_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(outcome.status, 0);
    CHECK_EQ(ibv_dereg_mr(outcome.mr), 0);
    CHECK_EQ(stats_of(NULL).workers, 4);
    close_device(device);
    return 0;
}
