/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory does not grow with the number of requests. AMR_LONG=1 makes it ten million. */
#include "device.h"
#include "process.h"

#include <sched.h>

enum { BATCH = 64, IN_FLIGHT = 512 };

static struct device device;
static void *buffer;
static struct amr_cq *cq;
static int under_way;

/* The queue may look full for as long as a worker that was interrupted holds an old place. */
static void post_all(const struct amr_wr *wr, size_t count) {
    size_t posted;
    int status;

    while ((status = amr_post(cq, wr, count, &posted)) == EAGAIN) {
        wr += posted;
        count -= posted;
        sched_yield();
    }
    CHECK_EQ(status, 0);
}

/* Registered, deregistered, and so on, until so many are done. */
static void perform(long requests) {
    while (requests > 0) {
        struct amr_wr wr[BATCH];
        struct amr_wc wc[BATCH];
        size_t count = 0;
        int got;

        while (under_way + (int)count < IN_FLIGHT && count < BATCH / 2)
            wr[count++] = reg_wr(1, device.pd, buffer, PAGE, ACCESS);
        got = amr_wait_cq(cq, BATCH / 2, wc, under_way > 0 ? -1 : 0);
        CHECK(got >= 0);
        for (int i = 0; i < got; i++) {
            CHECK_EQ(wc[i].status, 0);
            if (wc[i].opcode == AMR_OP_REG_MR)
                wr[count++] = dereg_wr(2, wc[i].mr);
        }
        post_all(wr, count);
        under_way += (int)count - got;
        requests -= got;
    }
}

static void callback(struct ibv_mr *mr, int status, void *ctx) {
    (void)ctx;
    CHECK_EQ(status, 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void perform_calls(long requests) {
    while (requests > 0) {
        int status = amr_register_async(device.pd, buffer, PAGE, ACCESS, callback, NULL);

        CHECK(status == 0 || status == EAGAIN);
        if (status == EAGAIN)
            CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
        else
            requests--;
    }
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
}

int main(void) {
    long requests = getenv("AMR_LONG") != NULL ? 10000000 : 2000000;
    long before, after;

    if (SANITIZED)
        skip("a sanitizer's own memory grows");
    device = open_sim();
    CHECK_EQ(sim_configure("pins=0"), 0);
    buffer = map_pages(PAGE);
    cq = new_cq(NULL, IN_FLIGHT + BATCH);

    /* Until each worker and each queue has all that it will ever need. */
    perform_calls(requests / 10);
    perform(requests / 10);
    before = status_field("VmRSS");
    perform(requests / 2);
    perform_calls(requests / 2);
    after = status_field("VmRSS");
    if (after > before + 1024)
        FAIL("%ld kB before and %ld kB after %ld requests", before, after, requests);
    return 0;
}
