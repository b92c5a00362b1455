/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * After a drain the completions can be read, also when many workers put others into the same
 * queue at that moment, and are interrupted anywhere in it. The same for a cancelled request.
 */
#include "device.h"

#include <pthread.h>
#include <sched.h>

enum { WORKERS = AMR_MAX_WORKERS, ROUNDS = 5000, FLOOD = 1000 };

static struct device device;
static void *buffer;
static struct amr_cq *cq;
static int flooding = 1;
static int flood_unread; /* atomic */

/* Keeps the workers busy with requests on the first PD. */
static void *flood(void *arg) {
    while (__atomic_load_n(&flooding, __ATOMIC_RELAXED)) {
        struct amr_wr wr = reg_wr(0, device.pd, buffer, PAGE, ACCESS);
        int status;

        if (__atomic_add_fetch(&flood_unread, 1, __ATOMIC_RELAXED) <= FLOOD) {
            status = amr_post(cq, &wr, 1, NULL);
            if (status == 0)
                continue;
            CHECK_EQ(status, EAGAIN);
        }
        __atomic_sub_fetch(&flood_unread, 1, __ATOMIC_RELAXED);
        sched_yield();
    }
    return arg;
}

/* All that can be read; returns how many of them are the one that is looked for. */
static int read_all(uint64_t wr_id, int status) {
    struct amr_wc wc[64];
    int found = 0, got;

    while ((got = amr_poll_cq(cq, ARRAY_SIZE(wc), wc)) > 0) {
        for (int i = 0; i < got; i++) {
            if (wc[i].mr != NULL)
                CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
            if (wc[i].wr_id == 0) {
                __atomic_sub_fetch(&flood_unread, 1, __ATOMIC_RELAXED);
                continue;
            }
            CHECK_EQ(wc[i].wr_id, wr_id);
            CHECK(wc[i].status == status);
            found++;
        }
    }
    CHECK_EQ(got, 0);
    return found;
}

int main(void) {
    struct amr_engine *engine;
    struct ibv_pd *pd;
    pthread_t thread;

    device = open_sim();
    CHECK_EQ(sim_configure("pins=0"), 0);
    buffer = map_pages(PAGE);
    pd = ibv_alloc_pd(device.context);
    CHECK(pd != NULL);
    engine = new_engine(WORKERS, 4096);
    cq = new_cq(engine, FLOOD + 2);
    CHECK_EQ(pthread_create(&thread, NULL, flood, NULL), 0);

    for (uint64_t id = 1; id <= ROUNDS; id++) {
        struct amr_wr wr = reg_wr(id, pd, buffer, PAGE, ACCESS);
        int status;

        while ((status = amr_post(cq, &wr, 1, NULL)) == EAGAIN)
            sched_yield();
        CHECK_EQ(status, 0);
        if (id % 2 == 0 && amr_cancel(cq, id) == 0) {
            CHECK_EQ(read_all(id, ECANCELED), 1);
            continue;
        }
        CHECK_EQ(amr_drain(engine, pd, -1), 0);
        CHECK_EQ(read_all(id, 0), 1);
    }

    __atomic_store_n(&flooding, 0, __ATOMIC_RELAXED);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(read_all(0, 0), 0);
    CHECK_EQ(flood_unread, 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
