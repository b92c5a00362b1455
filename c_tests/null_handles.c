/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* NULL handles and values out of range, of every function that takes any. */
#include "device.h"

#include <limits.h>

#define CHECK_NULL(call, error)                                                                    \
    do {                                                                                           \
        errno = 0;                                                                                 \
        CHECK((call) == NULL);                                                                     \
        CHECK_EQ(errno, error);                                                                    \
    } while (0)

static void no_engine(struct amr_engine_attr attr) {
    attr.size = sizeof(attr);
    CHECK_NULL(amr_create_engine(&attr), EINVAL);
}

static void engines(void) {
    no_engine((struct amr_engine_attr){.workers = AMR_MAX_WORKERS + 1});
    no_engine((struct amr_engine_attr){.workers = UINT32_MAX});
    no_engine((struct amr_engine_attr){.queue_depth = AMR_MAX_QUEUE_DEPTH + 1});
    no_engine((struct amr_engine_attr){.queue_depth = UINT32_MAX});
    no_engine((struct amr_engine_attr){.cpus = ""});
    no_engine((struct amr_engine_attr){.cpus = "zero"});
    no_engine((struct amr_engine_attr){.cpus = "0-"});
    no_engine((struct amr_engine_attr){.cpus = "1-0"});
    no_engine((struct amr_engine_attr){.cpus = "-1"});
    /* No CPU of any machine, and one that this machine does not have. */
    no_engine((struct amr_engine_attr){.cpus = "1048575"});
    no_engine((struct amr_engine_attr){.cpus = "8191"});
    no_engine((struct amr_engine_attr){.cpus = "99999999999999999999"});
    CHECK_EQ(amr_destroy_engine(NULL), EINVAL);
}

static void timeouts(struct amr_engine *engine, struct amr_cq *cq) {
    struct amr_wc wc;

    CHECK_EQ(amr_drain(engine, NULL, -2), EINVAL);
    CHECK_EQ(amr_drain(engine, NULL, INT_MIN), EINVAL);
    CHECK_EQ(amr_drain(NULL, NULL, INT_MIN), EINVAL);
    CHECK_EQ(amr_wait_cq(cq, 1, &wc, -2), -EINVAL);
    CHECK_EQ(amr_wait_cq(cq, 1, &wc, INT_MIN), -EINVAL);
}

static void queues(struct amr_engine *engine, struct amr_cq *cq) {
    struct amr_wc wc;

    CHECK_NULL(amr_create_cq(engine, 0), EINVAL);
    CHECK_NULL(amr_create_cq(engine, AMR_MAX_CQ_CAPACITY + 1), EINVAL);
    CHECK_NULL(amr_create_cq(NULL, 0), EINVAL);
    CHECK_EQ(amr_cq_fd(NULL), -EINVAL);
    CHECK_EQ(amr_poll_cq(NULL, 1, &wc), -EINVAL);
    CHECK_EQ(amr_poll_cq(cq, 1, NULL), -EINVAL);
    CHECK_EQ(amr_poll_cq(cq, 0, &wc), -EINVAL);
    CHECK_EQ(amr_poll_cq(cq, -1, &wc), -EINVAL);
    CHECK_EQ(amr_poll_cq(cq, INT_MIN, &wc), -EINVAL);
    CHECK_EQ(amr_wait_cq(NULL, 1, &wc, 0), -EINVAL);
    CHECK_EQ(amr_wait_cq(cq, 1, NULL, 0), -EINVAL);
    CHECK_EQ(amr_wait_cq(cq, 0, &wc, 0), -EINVAL);
    CHECK_EQ(amr_wait_cq(cq, -1, &wc, 0), -EINVAL);
    CHECK_EQ(amr_cancel(NULL, 1), EINVAL);
    CHECK_EQ(amr_destroy_cq(NULL), EINVAL);
}

static void information(struct amr_engine *engine) {
    struct amr_wc wc = {0};
    char text[8];

    CHECK_EQ(amr_query_limits(NULL, NULL), EINVAL);
    CHECK_EQ(amr_query_stats(engine, NULL), EINVAL);
    CHECK_EQ(amr_query_stats(NULL, NULL), EINVAL);
    CHECK_EQ(amr_explain(NULL, text, sizeof(text)), -EINVAL);
    CHECK_EQ(amr_explain(&wc, NULL, 1), -EINVAL);
}

int main(void) {
    struct amr_engine *engine = new_engine(1, 0);
    struct amr_cq *cq = new_cq(engine, 1);

    engines();
    timeouts(engine, cq);
    queues(engine, cq);
    information(engine);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    return 0;
}
