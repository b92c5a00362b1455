/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* 32 threads submit 10 000 registrations each: every one is called back once, as itself. F45. */
#include "device.h"

#include <pthread.h>
#include <sched.h>

enum { THREADS = 32, EACH = 10000 };

static struct device device;
static char *buffer;
static unsigned char ledger[THREADS * EACH];
static sem_t over;

static void callback(struct ibv_mr *mr, int status, void *ctx) {
    size_t number = (size_t)((unsigned char *)ctx - ledger);

    CHECK(number < THREADS * EACH);
    CHECK_EQ(status, 0);
    CHECK(mr->addr == buffer + number % PAGE);
    CHECK_EQ(mr->length, 1 + number);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(__atomic_fetch_add(&ledger[number], 1, __ATOMIC_RELAXED), 0);
    if ((number + 1) % EACH == 0)
        sem_post(&over);
}

static void *submitter(void *arg) {
    size_t first = (size_t)((unsigned char *)arg - ledger);

    for (size_t number = first; number < first + EACH; number++) {
        int status;

        while ((status = amr_register_async(device.pd, buffer + number % PAGE, 1 + number, ACCESS,
                                            callback, &ledger[number])) == EAGAIN)
            sched_yield();
        CHECK_EQ(status, 0);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];

    device = open_sim();
    /* The ledger is what is tested, not the pinning. */
    CHECK_EQ(sim_configure("pins=0"), 0);
    buffer = map_pages(THREADS * EACH + 2 * PAGE);
    CHECK_EQ(sem_init(&over, 0, 0), 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, submitter, &ledger[i * EACH]), 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++)
        sem_wait(&over);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);

    for (size_t i = 0; i < THREADS * EACH; i++)
        if (ledger[i] != 1)
            FAIL("request %zu was called back %d times", i, ledger[i]);
    CHECK_EQ(sim_counts().reg_calls, THREADS * EACH);
    CHECK_EQ(sim_counts().live_mrs, 0);
    CHECK_EQ(stats_of(NULL).completed, THREADS * EACH);
    close_device(device);
    return 0;
}
