/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Transient errors are tried again, a bounded number of times, and the worker serves others
 * meanwhile. F6.
 */
#include "device.h"

#include <sched.h>

/* Far more than any sensible number of attempts. */
enum { MOST_ATTEMPTS = 1000 };

static struct device device;
static char *buffer;

static void configure(const char *format, int error) {
    char rule[64];

    snprintf(rule, sizeof(rule), format, error);
    CHECK_EQ(sim_configure(rule), 0);
}

static void registration(struct amr_cq *cq, int error) {
    struct amr_wc wc;

    configure("fail_first=2:%d", error);
    post_reg(cq, 1, device.pd, buffer, PAGE);
    wc = read_wc(cq);
    CHECK_EQ(wc.status, 0);
    CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    CHECK_EQ(sim_counts().reg_calls, 3);
    reset_sim();

    configure("fail_after=0:%d", error);
    post_reg(cq, 2, device.pd, buffer, PAGE);
    wc = read_wc(cq);
    CHECK_EQ(wc.status, error);
    CHECK(wc.mr == NULL);
    CHECK(sim_counts().reg_calls >= 3);
    CHECK(sim_counts().reg_calls <= MOST_ATTEMPTS);
    reset_sim();
}

static void deregistration(struct amr_cq *cq, int error) {
    struct ibv_mr *mr = reg(cq, device.pd, buffer, PAGE);
    struct amr_wc wc;

    configure("dereg_fail_after=0:%d", error);
    post(cq, dereg_wr(3, mr));
    wc = read_wc(cq);
    CHECK_EQ(wc.status, error);
    CHECK(wc.mr == mr);
    CHECK(sim_counts().dereg_calls >= 3);
    CHECK(sim_counts().dereg_calls <= MOST_ATTEMPTS);
    reset_sim();

    configure("dereg_fail_first=2:%d", error);
    post(cq, dereg_wr(4, mr));
    wc = read_wc(cq);
    CHECK_EQ(wc.status, 0);
    CHECK(wc.mr == NULL);
    CHECK_EQ(sim_counts().dereg_calls, 3);
    reset_sim();
}

static void by_call(int error) {
    struct outcome outcome;

    configure("fail_first=2:%d", error);
    outcome_init(&outcome);
    CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, outcome_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(outcome.status, 0);
    CHECK_EQ(ibv_dereg_mr(outcome.mr), 0);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    outcome_end(&outcome);
    CHECK_EQ(sim_counts().reg_calls, 3);
    reset_sim();
}

/* More than could wait for another attempt: still each completes once. */
static void many(struct amr_cq *cq, int error) {
    enum { COUNT = 500 };
    static struct amr_wr wr[COUNT];
    static struct amr_wc wc[COUNT];
    static unsigned char seen[COUNT];

    memset(seen, 0, sizeof(seen));
    configure("fail_after=0:%d", error);
    for (size_t i = 0; i < COUNT; i++)
        wr[i] = reg_wr(i, device.pd, buffer, PAGE, ACCESS);
    CHECK_EQ(amr_post(cq, wr, COUNT, NULL), 0);
    read_wcs(cq, wc, COUNT);
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQ(wc[i].status, error);
        CHECK_EQ(seen[wc[i].wr_id]++, 0);
    }
    reset_sim();
}

/* One worker: while a request waits for its next attempt, those in the queue have their turn. */
static void others_meanwhile(int error) {
    enum { OTHERS = 100 };
    struct amr_engine *engine = new_engine(1, 256);
    struct amr_cq *cq = new_cq(engine, 256);
    static struct sim_call calls[4096];
    struct amr_wc wc;
    size_t count, attempts = 0, first_other = SIZE_MAX, last_attempt = 0;

    sim_fail_range(buffer, PAGE, error);
    sim_record(1);
    sim_gate_close(SIM_REG);
    post_reg(cq, 0, device.pd, buffer, PAGE);
    wait_running(1);
    for (uint64_t id = 1; id <= OTHERS; id++)
        post_reg(cq, id, device.pd, buffer + PAGE, PAGE);
    sim_gate_open();
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);

    count = sim_calls(calls, ARRAY_SIZE(calls));
    for (size_t i = 0; i < count; i++) {
        if (calls[i].addr == buffer) {
            attempts++;
            last_attempt = i;
        } else if (first_other == SIZE_MAX) {
            first_other = i;
        }
    }
    CHECK_EQ(count, attempts + OTHERS);
    CHECK(attempts >= 3);
    CHECK(first_other < last_attempt);
    reset_sim();
    for (int i = 0; i <= OTHERS; i++) {
        wc = read_wc(cq);
        CHECK_EQ(wc.status, wc.wr_id == 0 ? error : 0);
        if (wc.status == 0)
            CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    }

    /* A drain waits for the next attempt too. */
    configure("fail_first=2:%d", error);
    post_reg(cq, 3, device.pd, buffer, PAGE);
    CHECK_EQ(amr_drain(engine, device.pd, -1), 0);
    CHECK_EQ(amr_poll_cq(cq, 1, &wc), 1);
    CHECK_EQ(wc.status, 0);
    CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    reset_sim();
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

/* Between two attempts a request waits, and can be cancelled like any that waits. */
static void cancelled(struct amr_cq *cq, int error) {
    struct ibv_mr *mr = reg(cq, device.pd, buffer, PAGE);
    int withdrawn = 0;

    for (int i = 0; i < 200; i++) {
        struct amr_wc wc;
        int status;

        configure("dereg_fail_after=0:%d", error);
        post(cq, dereg_wr(9, mr));
        while (sim_counts().dereg_calls == 0)
            sched_yield();
        do {
            status = amr_cancel(cq, 9);
        } while (status == EALREADY);
        CHECK(status == 0 || status == ENOENT);
        withdrawn += status == 0;
        wc = read_wc(cq);
        CHECK_EQ(wc.status, status == 0 ? ECANCELED : error);
        CHECK(wc.mr == mr);
        check_empty(cq);
        CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
        reset_sim();
    }
    CHECK(withdrawn > 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

int main(void) {
    static const int errors[] = {EAGAIN, EINTR};
    struct amr_cq *cq;

    device = open_sim();
    buffer = map_pages(2 * PAGE);
    cq = new_cq(NULL, 1000);
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        registration(cq, errors[i]);
        deregistration(cq, errors[i]);
        by_call(errors[i]);
        many(cq, errors[i]);
        others_meanwhile(errors[i]);
        cancelled(cq, errors[i]);
    }
    CHECK_EQ(sim_counts().live_mrs, 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
