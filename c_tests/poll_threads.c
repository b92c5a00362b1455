/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Several threads post to one queue and several others poll it, without waiting. F45. */
#include "device.h"

#include <pthread.h>
#include <sched.h>

enum { POSTERS = 4, POLLERS = 4, EACH = 20000, TOTAL = POSTERS * EACH };

static struct device device;
static char *buffer;
static struct amr_cq *cq;
static unsigned char ledger[TOTAL];
static int read_so_far;

static void *poster(void *arg) {
    uint64_t id = (uint64_t)((unsigned char *)arg - ledger);
    uint64_t end = id + EACH;

    while (id < end) {
        struct amr_wr wr[7];
        size_t count = end - id < 7 ? (size_t)(end - id) : 7;
        size_t posted;
        int status;

        for (size_t i = 0; i < count; i++)
            wr[i] = reg_wr(id + i, device.pd, buffer, PAGE, ACCESS);
        status = amr_post(cq, wr, count, &posted);
        CHECK(status == 0 ? posted == count : status == EAGAIN && posted < count);
        id += posted;
        if (status == EAGAIN)
            sched_yield();
    }
    return NULL;
}

static void *poller(void *arg) {
    int batch = 1 + (int)(uintptr_t)arg * 5;
    struct amr_wc wc[1 + POLLERS * 5];

    while (__atomic_load_n(&read_so_far, __ATOMIC_RELAXED) < TOTAL) {
        int got = amr_poll_cq(cq, batch, wc);

        CHECK(got >= 0 && got <= batch);
        for (int i = 0; i < got; i++) {
            CHECK(wc[i].wr_id < TOTAL);
            CHECK_EQ(wc[i].status, 0);
            CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
            CHECK_EQ(__atomic_fetch_add(&ledger[wc[i].wr_id], 1, __ATOMIC_RELAXED), 0);
        }
        __atomic_add_fetch(&read_so_far, got, __ATOMIC_RELAXED);
        if (got == 0)
            sched_yield();
    }
    return NULL;
}

int main(void) {
    struct amr_engine *engine = new_engine(3, 64);
    pthread_t posters[POSTERS], pollers[POLLERS];

    device = open_sim();
    CHECK_EQ(sim_configure("pins=0"), 0);
    buffer = map_pages(PAGE);
    cq = new_cq(engine, 100);
    for (size_t i = 0; i < POLLERS; i++)
        CHECK_EQ(pthread_create(&pollers[i], NULL, poller, (void *)(uintptr_t)i), 0);
    for (size_t i = 0; i < POSTERS; i++)
        CHECK_EQ(pthread_create(&posters[i], NULL, poster, &ledger[i * EACH]), 0);
    for (size_t i = 0; i < POSTERS; i++)
        CHECK_EQ(pthread_join(posters[i], NULL), 0);
    for (size_t i = 0; i < POLLERS; i++)
        CHECK_EQ(pthread_join(pollers[i], NULL), 0);

    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    check_empty(cq);
    for (size_t i = 0; i < TOTAL; i++)
        CHECK_EQ(ledger[i], 1);
    CHECK_EQ(sim_counts().reg_calls, TOTAL);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
