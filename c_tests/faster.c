/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Fresh memory is registered sooner than by ibv_reg_mr, where there are two CPUs to fault it in.
 * By how much is for the benchmark to say, on a machine that is not emulated. */
#include "device.h"

#include <time.h>

#define LENGTH ((size_t)256 << 20)
#define ROUNDS 5
#define ATTEMPTS 3

static double now(void) {
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Seconds until the region is there; cq NULL: the blocking call. */
static double time_fresh(struct ibv_pd *pd, struct amr_cq *cq) {
    void *pages = map_pages(LENGTH);
    double start = now(), time;
    struct ibv_mr *mr =
        cq != NULL ? reg(cq, pd, pages, LENGTH) : ibv_reg_mr(pd, pages, LENGTH, ACCESS);

    time = now() - start;
    CHECK(mr != NULL);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(munmap(pages, LENGTH), 0);
    return time;
}

static int compare(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static double median(const char *name, double *times) {
    qsort(times, ROUNDS, sizeof(*times), compare);
    printf("%s: %.3f s (%.3f to %.3f)\n", name, times[ROUNDS / 2], times[0], times[ROUNDS - 1]);
    return times[ROUNDS / 2];
}

static int is_faster(struct ibv_pd *pd, struct amr_cq *cq) {
    double blocking[ROUNDS], libamr[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        blocking[i] = time_fresh(pd, NULL);
        libamr[i] = time_fresh(pd, cq);
    }
    return median("libamr", libamr) < median("ibv_reg_mr", blocking);
}

int main(void) {
    struct device device = open_pinning_device();
    struct amr_engine *engine = new_engine(2, 0);
    struct amr_cq *cq = new_cq(engine, 1);
    int attempts = 1;

    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        skip("there is one CPU only");
    /* A virtual machine gets its memory when it first touches it. */
    time_fresh(device.pd, NULL);
    /* Who has to share the two CPUs with others can lose by bad luck, but not always. */
    while (!is_faster(device.pd, cq))
        CHECK(attempts++ < ATTEMPTS);

    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
