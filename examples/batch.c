/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Registers 1,000 buffers with one call, reads the completions in batches, and
 * deregisters all of them in the same way.
 *
 * Usage: batch [-c CAPACITY] [DEVICE]
 *
 * CAPACITY is how many requests may be on their way at a time. If it is less
 * than 1,000, a post takes a part of the requests and says EAGAIN.
 */
#define _GNU_SOURCE
#include "common/helper.h"
#include <amr/amr.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BUFFERS = 1000, BATCH = 64 };
static const size_t SIZE = (size_t)64 << 10;

/* What became of BUFFERS requests. */
struct tally {
    int completed, failed;
    int posts;      /* calls of amr_post that took something */
    double post_ms; /* time spent in amr_post */
};

/* Posts as many of the rest as there is room for, and returns how many these were. */
static size_t post_some(struct amr_cq *cq, const struct amr_wr *wr, size_t count,
                        struct tally *tally) {
    size_t posted = 0;
    double start = now_ms();
    int error = amr_post(cq, wr, count, &posted);
    if (error && error != EAGAIN)
        errx(1, "amr_post: %s", amr_status_str(error));
    tally->post_ms += now_ms() - start;
    tally->posts += posted > 0;
    return posted;
}

/* Waits until there is a completion, or the time is over, and reads up to BATCH of them. */
static void read_batch(struct amr_cq *cq, struct ibv_mr **mr, int timeout_ms, struct tally *tally) {
    struct amr_wc wc[BATCH];
    int count = amr_wait_cq(cq, BATCH, wc, timeout_ms);
    if (count < 0)
        errx(1, "amr_wait_cq: %s", amr_status_str(-count));
    for (int i = 0; i < count; i++) {
        mr[wc[i].wr_id] = wc[i].mr;
        if (wc[i].status && tally->failed++ == 0) { /* one explanation is enough */
            char text[512];
            amr_explain(&wc[i], text, sizeof(text));
            warnx("buffer %" PRIu64 ": %s", wc[i].wr_id, text);
        }
    }
    tally->completed += count;
}

static void run(const char *what, struct amr_cq *cq, const struct amr_wr *wr, size_t count,
                struct ibv_mr **mr) {
    struct tally tally = {0};
    double start = now_ms();
    size_t posted = 0;
    while ((size_t)tally.completed < count) {
        if (posted < count)
            posted += post_some(cq, wr + posted, count - posted, &tally);
        /* While something is left to post, look again soon: the engine's queue may
         * have been full of others' requests, whose completions do not come here. */
        read_batch(cq, mr, posted < count ? 1 : -1, &tally);
    }
    double duration = now_ms() - start;
    if (tally.failed)
        errx(1, "%d of %zu requests failed", tally.failed, count);
    printf("%s %zu buffers in %.1f ms: %.0f/s; %d call%s of amr_post took %.2f ms\n", what, count,
           duration, (double)count / duration * 1e3, tally.posts, tally.posts == 1 ? "" : "s",
           tally.post_ms);
}

static void register_all(struct amr_cq *cq, struct ibv_pd *pd, char *memory, struct ibv_mr **mr) {
    static struct amr_wr wr[BUFFERS];
    for (size_t i = 0; i < BUFFERS; i++) {
        wr[i].wr_id = i;
        wr[i].opcode = AMR_OP_REG_MR;
        wr[i].op.reg_mr.pd = pd;
        wr[i].op.reg_mr.addr = memory + i * SIZE;
        wr[i].op.reg_mr.length = SIZE;
        wr[i].op.reg_mr.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    }
    run("registered", cq, wr, BUFFERS, mr);
}

static void deregister_all(struct amr_cq *cq, struct ibv_mr **mr) {
    static struct amr_wr wr[BUFFERS];
    for (size_t i = 0; i < BUFFERS; i++) {
        wr[i].wr_id = i;
        wr[i].opcode = AMR_OP_DEREG_MR;
        wr[i].op.dereg_mr.mr = mr[i];
    }
    run("deregistered", cq, wr, BUFFERS, mr);
}

int main(int argc, char **argv) {
    static struct ibv_mr *mr[BUFFERS];
    uint32_t capacity = BUFFERS;
    int option;
    while ((option = getopt(argc, argv, "c:")) != -1) {
        if (option != 'c')
            errx(1, "usage: batch [-c CAPACITY] [DEVICE]");
        capacity = (uint32_t)strtoul(optarg, NULL, 10);
    }

    struct ibv_pd *pd = open_pd(argv[optind]);
    struct amr_cq *cq = amr_create_cq(NULL, capacity);
    char *memory = malloc(BUFFERS * SIZE);
    if (!cq || !memory)
        err(1, "cannot create the queue or the buffers");

    register_all(cq, pd, memory, mr);
    deregister_all(cq, mr);

    int error = amr_destroy_cq(cq);
    if (error)
        errx(1, "amr_destroy_cq: %s", amr_status_str(error));
    close_pd(pd);
    free(memory);
    return 0;
}
