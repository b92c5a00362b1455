/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* No call is a cancellation point: a thread that was cancelled before ends after it, unharmed. */
#include "device.h"
#include "process.h"

#include <pthread.h>

static struct device device;
static void *buffer;
static int calls_over;

static void ignore(struct ibv_mr *mr, int status, void *ctx) {
    (void)mr, (void)status, (void)ctx;
}

/* Calls everything that makes system calls, with a cancellation pending. */
static void *call_all(void *arg) {
    struct amr_limits limits = {.size = sizeof(limits)};
    struct amr_stats stats = {.size = sizeof(stats)};
    struct amr_engine *engine;
    struct amr_cq *cq;
    struct amr_wc wc;
    char text[512];

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    while (!__atomic_load_n((int *)arg, __ATOMIC_ACQUIRE))
        usleep(100);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);

    engine = amr_create_engine(NULL);
    cq = amr_create_cq(engine, 4);
    amr_cq_fd(cq);
    for (uint64_t id = 1; id <= 2; id++)
        amr_post(cq,
                 &(struct amr_wr){.wr_id = id,
                                  .opcode = AMR_OP_REG_MR,
                                  .op.reg_mr = {.pd = device.pd,
                                                .addr = buffer,
                                                .length = PAGE,
                                                .access = IBV_ACCESS_LOCAL_WRITE}},
                 1, NULL);
    amr_drain(engine, NULL, -1);
    amr_poll_cq(cq, 1, &wc);
    amr_deregister_async(wc.mr, ignore, NULL);
    amr_cancel(cq, 77);
    amr_query_limits(device.context, &limits);
    amr_query_stats(NULL, &stats);
    amr_explain(&(struct amr_wc){.opcode = AMR_OP_REG_MR, .status = ENOMEM}, text, sizeof(text));
    amr_wait_cq(cq, 1, &wc, -1);
    amr_wait_cq(cq, 1, &wc, 1);
    amr_destroy_cq(cq);
    amr_destroy_engine(engine);
    calls_over = 1;
    pthread_testcancel();
    return NULL;
}

int main(void) {
    int cancelled = 0, tasks;
    pthread_t thread;
    void *result;

    device = open_sim();
    buffer = map_pages(PAGE);
    CHECK(amr_default_engine() != NULL);
    tasks = count_tasks();
    CHECK_EQ(pthread_create(&thread, NULL, call_all, &cancelled), 0);
    CHECK_EQ(pthread_cancel(thread), 0);
    __atomic_store_n(&cancelled, 1, __ATOMIC_RELEASE);
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK(result == PTHREAD_CANCELED);
    CHECK_EQ(calls_over, 1);
    wait_tasks(tasks);
    return 0;
}
