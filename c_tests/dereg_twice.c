/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A region whose deregistration is under way is not taken a second time: not on the same queue, not
 * on another engine, not by the other call; and it can be posted again as soon as the first is over
 * without having freed it. F32.
 */
#include "device.h"

#include <pthread.h>

enum { RACERS = 4, RACES = 300 };

static struct device device;
static struct amr_engine *engine;
static struct amr_cq *cq, *other_cq;
static char *buffer;

static void never(struct ibv_mr *mr, int status, void *ctx) {
    (void)mr;
    FAIL("callback of a refused request, status %d, ctx %p", status, ctx);
}

static struct ibv_mr *new_mr(void) {
    struct ibv_mr *mr = ibv_reg_mr(device.pd, buffer, PAGE, ACCESS);

    CHECK(mr != NULL);
    return mr;
}

/* By every way there is. */
static void expect_refusal(struct ibv_mr *mr) {
    struct amr_wr wr = dereg_wr(99, mr);
    size_t posted = 99;

    CHECK_EQ(amr_post(cq, &wr, 1, &posted), EALREADY);
    CHECK_EQ(posted, 0);
    CHECK_EQ(amr_post(other_cq, &wr, 1, &posted), EALREADY);
    CHECK_EQ(posted, 0);
    CHECK_EQ(amr_deregister_async(mr, never, NULL), EALREADY);
}

static void queued_or_running(void) {
    struct ibv_mr *running = new_mr(), *queued = new_mr();
    struct outcome outcome;

    sim_gate_close(SIM_DEREG);
    post(cq, dereg_wr(1, running));
    wait_running(1);
    post(cq, dereg_wr(2, queued));
    expect_refusal(running);
    expect_refusal(queued);
    sim_gate_open();
    CHECK_EQ(read_wc(cq).status, 0);
    CHECK_EQ(read_wc(cq).status, 0);

    running = new_mr();
    sim_gate_close(SIM_DEREG);
    outcome_init(&outcome);
    CHECK_EQ(amr_deregister_async(running, outcome_callback, &outcome), 0);
    expect_refusal(running);
    sim_gate_open();
    outcome_wait(&outcome);
    CHECK_EQ(outcome.status, 0);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    outcome_end(&outcome);
    check_empty(cq);
    check_empty(other_cq);
}

/* Twice in one call: what comes before the second is taken. */
static void in_one_batch(void) {
    struct ibv_mr *mr = new_mr(), *last = new_mr();
    struct amr_wr wrs[3];
    size_t posted;

    wrs[0] = dereg_wr(1, mr);
    wrs[1] = dereg_wr(2, mr);
    wrs[2] = dereg_wr(3, last);
    sim_gate_close(SIM_DEREG);
    CHECK_EQ(amr_post(cq, wrs, 3, &posted), EALREADY);
    CHECK_EQ(posted, 1);
    sim_gate_open();
    CHECK_EQ(read_wc(cq).wr_id, 1);
    CHECK_EQ(amr_post(cq, wrs + 2, 1, NULL), 0);
    CHECK_EQ(read_wc(cq).status, 0);
}

/* A region that was not deregistered after all. */
static void alive_again(void) {
    struct ibv_mr *mr = new_mr(), *first = new_mr();
    struct amr_cq *small = new_cq(engine, 1);
    struct amr_wr wrs[2];
    struct amr_wc wc;
    size_t posted;

    CHECK_EQ(sim_configure("dereg_fail_nth=1:EBUSY"), 0);
    post(cq, dereg_wr(1, mr));
    wc = read_wc(cq);
    CHECK_EQ(wc.status, EBUSY);
    reset_sim();

    /* Cancelled. */
    sim_gate_close(SIM_DEREG);
    post(cq, dereg_wr(2, first));
    wait_running(1);
    post(cq, dereg_wr(3, wc.mr));
    CHECK_EQ(amr_cancel(cq, 3), 0);
    wc = read_wc(cq);
    CHECK_EQ(wc.status, ECANCELED);
    CHECK(wc.mr == mr);
    post(cq, dereg_wr(4, wc.mr));
    sim_gate_open();
    CHECK_EQ(read_wc(cq).status, 0);
    CHECK_EQ(read_wc(cq).status, 0);

    /* Refused for want of a place. */
    mr = new_mr();
    first = new_mr();
    wrs[0] = dereg_wr(5, first);
    wrs[1] = dereg_wr(6, mr);
    CHECK_EQ(amr_post(small, wrs, 2, &posted), EAGAIN);
    CHECK_EQ(posted, 1);
    CHECK_EQ(read_wc(small).status, 0);
    CHECK_EQ(amr_post(small, wrs + 1, 1, NULL), 0);
    CHECK_EQ(read_wc(small).status, 0);
    CHECK_EQ(amr_destroy_cq(small), 0);

    /* Between two attempts it is under way. */
    mr = new_mr();
    CHECK_EQ(sim_configure("dereg_fail_first=2:EAGAIN"), 0);
    post(cq, dereg_wr(7, mr));
    while (sim_counts().dereg_failed < 1)
        usleep(10);
    if (sim_counts().dereg_failed < 2)
        expect_refusal(mr);
    CHECK_EQ(read_wc(cq).status, 0);
    reset_sim();
}

static void retry_in_callback(struct ibv_mr *mr, int status, void *ctx) {
    CHECK_EQ(status, EBUSY);
    CHECK_EQ(amr_deregister_async(mr, outcome_callback, ctx), 0);
}

static void from_its_callback(void) {
    struct outcome outcome;

    CHECK_EQ(sim_configure("dereg_fail_nth=1:EBUSY"), 0);
    outcome_init(&outcome);
    CHECK_EQ(amr_deregister_async(new_mr(), retry_in_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(outcome.status, 0);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    outcome_end(&outcome);
    reset_sim();
}

/* A new region often gets the address of one that was just freed. */
static void at_the_same_address(void) {
    int same = 0;
    void *last = NULL;

    for (int i = 0; i < 2000; i++) {
        struct ibv_mr *mr = new_mr();

        same += mr == last;
        last = mr;
        post(i % 2 ? cq : other_cq, dereg_wr(1, mr));
        CHECK_EQ(read_wc(i % 2 ? cq : other_cq).status, 0);
    }
    printf("%d of 2000 regions had the address of the one before\n", same);
}

static pthread_barrier_t barrier;
static struct ibv_mr *contested;
static int taken; /* atomic */

static void *race(void *arg) {
    struct amr_cq *own = *(struct amr_cq **)arg;

    for (int i = 0; i < RACES; i++) {
        struct amr_wr wr;
        int status;

        pthread_barrier_wait(&barrier);
        wr = dereg_wr(1, contested);
        status = amr_post(own, &wr, 1, NULL);
        CHECK(status == 0 || status == EALREADY);
        if (status == 0)
            __atomic_add_fetch(&taken, 1, __ATOMIC_RELAXED);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

/* Of several threads that post the same region at once, exactly one succeeds. */
static void one_of_many(void) {
    pthread_t threads[RACERS];
    struct amr_cq *own[RACERS];

    CHECK_EQ(pthread_barrier_init(&barrier, NULL, RACERS + 1), 0);
    for (int i = 0; i < RACERS; i++) {
        own[i] = new_cq(i % 2 ? engine : NULL, 2);
        CHECK_EQ(pthread_create(&threads[i], NULL, race, &own[i]), 0);
    }
    for (int i = 0; i < RACES; i++) {
        int found = 0;

        contested = new_mr();
        taken = 0;
        sim_gate_close(SIM_DEREG);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        sim_gate_open();
        CHECK_EQ(taken, 1);
        CHECK_EQ(amr_drain(engine, NULL, -1), 0);
        CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
        for (int j = 0; j < RACERS; j++) {
            struct amr_wc wc;

            if (amr_poll_cq(own[j], 1, &wc) == 1) {
                CHECK_EQ(wc.status, 0);
                found++;
            }
        }
        CHECK_EQ(found, 1);
    }
    for (int i = 0; i < RACERS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK_EQ(amr_destroy_cq(own[i]), 0);
    }
}

int main(void) {
    device = open_sim();
    buffer = map_pages(PAGE);
    engine = new_engine(1, 0);
    cq = new_cq(engine, 8);
    other_cq = new_cq(NULL, 8);
    queued_or_running();
    in_one_batch();
    alive_again();
    from_its_callback();
    at_the_same_address();
    one_of_many();
    CHECK_EQ(sim_counts().live_mrs, 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_cq(other_cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
