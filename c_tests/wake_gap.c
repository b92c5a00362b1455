/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One request at a time, at any moment of the workers' falling asleep. A wake that is lost shows
 * as a test that does not end.
 */
#include "device.h"

#include <poll.h>

/* Of each kind; the argument is another number, for a longer run. */
static int rounds = 5000;

static uint32_t random_state = 1;

static uint32_t random_number(void) {
    random_state = random_state * 1664525 + 1013904223;
    return random_state >> 8;
}

/* From nothing to well beyond the time that a worker looks for work before it sleeps. */
static void pause_a_little(void) {
    volatile uint32_t spins = random_number() % 100000;

    if (random_number() % 4 == 0)
        usleep(random_number() % 200);
    else
        while (spins > 0)
            spins = spins - 1;
}

static void by_fd(struct ibv_pd *pd, void *buffer, uint32_t workers) {
    struct amr_engine *engine = new_engine(workers, 4);
    struct amr_cq *cq = new_cq(engine, 1);
    struct pollfd pollfd = {.fd = amr_cq_fd(cq), .events = POLLIN};

    for (uint64_t id = 0; id < (uint64_t)rounds; id++) {
        struct amr_wc wc;

        post_reg(cq, id, pd, buffer, PAGE);
        CHECK_EQ(poll(&pollfd, 1, -1), 1);
        CHECK_EQ(amr_poll_cq(cq, 1, &wc), 1);
        CHECK_EQ(wc.wr_id, id);
        CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
        pause_a_little();
    }
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

static void by_waiting(struct ibv_pd *pd, void *buffer) {
    struct amr_cq *cq = new_cq(NULL, 1);

    for (uint64_t id = 0; id < (uint64_t)rounds; id++) {
        CHECK_EQ(ibv_dereg_mr(reg(cq, pd, buffer, PAGE)), 0);
        pause_a_little();
    }
    CHECK_EQ(amr_destroy_cq(cq), 0);
}

static void by_callback(struct ibv_pd *pd, void *buffer) {
    struct outcome outcome;

    outcome_init(&outcome);
    for (int i = 0; i < rounds; i++) {
        CHECK_EQ(amr_register_async(pd, buffer, PAGE, ACCESS, outcome_callback, &outcome), 0);
        outcome_wait(&outcome);
        CHECK_EQ(outcome.status, 0);
        CHECK_EQ(ibv_dereg_mr(outcome.mr), 0);
        pause_a_little();
    }
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    CHECK_EQ(outcome.calls, rounds);
}

/* A drain that begins while the last request ends. */
static void by_draining(struct ibv_pd *pd, void *buffer) {
    struct amr_cq *cq = new_cq(NULL, 1);
    struct amr_wc wc;

    for (uint64_t id = 0; id < (uint64_t)rounds; id++) {
        post_reg(cq, id, pd, buffer, PAGE);
        if (id % 2 == 0)
            pause_a_little();
        CHECK_EQ(amr_drain(NULL, pd, -1), 0);
        CHECK_EQ(amr_poll_cq(cq, 1, &wc), 1);
        CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    }
    CHECK_EQ(amr_destroy_cq(cq), 0);
}

int main(int argc, char **argv) {
    struct device device = open_sim();
    void *buffer = map_pages(PAGE);

    if (argc > 1)
        rounds = atoi(argv[1]);
    CHECK_EQ(sim_configure("pins=0"), 0);
    by_fd(device.pd, buffer, 1);
    by_fd(device.pd, buffer, 2);
    by_waiting(device.pd, buffer);
    by_callback(device.pd, buffer);
    by_draining(device.pd, buffer);
    CHECK_EQ(sim_counts().live_mrs, 0);
    close_device(device);
    return 0;
}
