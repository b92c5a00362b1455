/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * fork(): in the child all handles of the parent say EPERM at once and the default engine is a new
 * one; the parent goes on as if nothing had happened. F40.
 */
#include "device.h"
#include "process.h"

#include <poll.h>

static struct device device;
static char *buffer;
static struct amr_engine *engine;
static struct amr_cq *cq;

static void handles_are_refused(void) {
    struct amr_wr wr = reg_wr(1, device.pd, buffer, PAGE, ACCESS);
    struct amr_stats stats = {.size = sizeof(stats)};
    struct amr_wc wc;
    size_t posted = 99;

    errno = 0;
    CHECK(amr_create_cq(engine, 1) == NULL);
    CHECK_EQ(errno, EPERM);
    CHECK_EQ(amr_cq_fd(cq), -EPERM);
    CHECK_EQ(amr_poll_cq(cq, 1, &wc), -EPERM);
    CHECK_EQ(amr_wait_cq(cq, 1, &wc, -1), -EPERM);
    CHECK_EQ(amr_post(cq, &wr, 1, &posted), EPERM);
    CHECK_EQ(posted, 0);
    CHECK_EQ(amr_cancel(cq, 1), EPERM);
    CHECK_EQ(amr_destroy_cq(cq), EPERM);
    CHECK_EQ(amr_drain(engine, NULL, -1), EPERM);
    CHECK_EQ(amr_query_stats(engine, &stats), EPERM);
    CHECK_EQ(amr_destroy_engine(engine), EPERM);
}

static void texts_work(void) {
    struct amr_limits limits = {.size = sizeof(limits)};
    struct amr_wc wc = {.status = ENOMEM, .diag = AMR_DIAG_MEMLOCK};
    char text[1024];

    CHECK(amr_version()[0] != '\0');
    CHECK(amr_status_str(ENOMEM)[0] != '\0');
    CHECK(amr_explain(&wc, text, sizeof(text)) > 0);
    CHECK_EQ(amr_query_limits(NULL, &limits), 0);
}

/* On a device that the child opens itself, for RDMA's own handles are the parent's too. */
static void everything_works_anew(void) {
    struct device own = open_device();
    struct amr_engine *own_engine;
    struct amr_cq *own_cq = new_cq(NULL, 4);
    struct outcome outcome;

    CHECK_EQ(stats_of(NULL).submitted, 0);
    CHECK_EQ(ibv_dereg_mr(reg(own_cq, own.pd, buffer, PAGE)), 0);
    CHECK_EQ(amr_destroy_cq(own_cq), 0);

    outcome_init(&outcome);
    CHECK_EQ(amr_register_async(own.pd, buffer, PAGE, ACCESS, outcome_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(outcome.status, 0);
    CHECK_EQ(ibv_dereg_mr(outcome.mr), 0);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    outcome_end(&outcome);

    own_engine = new_engine(2, 0);
    own_cq = new_cq(own_engine, 4);
    CHECK_EQ(ibv_dereg_mr(reg(own_cq, own.pd, buffer, PAGE)), 0);
    CHECK_EQ(amr_drain(own_engine, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(own_cq), 0);
    CHECK_EQ(amr_destroy_engine(own_engine), 0);
    close_device(own);
}

static void grandchild(void) {
    struct amr_cq *parents_cq = new_cq(NULL, 1);
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        struct amr_wc wc;

        handles_are_refused();
        CHECK_EQ(amr_poll_cq(parents_cq, 1, &wc), -EPERM);
        everything_works_anew();
        exit_child(0);
    }
    check_child(child);
    CHECK_EQ(amr_destroy_cq(parents_cq), 0);
}

/* Exits with 7 by exit(), so that all exit handlers run. */
__attribute__((noreturn)) static void child_main(void) {
    alarm(60);
    handles_are_refused();
    texts_work();
    if (sim_present())
        sim_reset();
    everything_works_anew();
    handles_are_refused();
    grandchild();
    exit_child(7);
}

static void check_seven(pid_t child) {
    int status = wait_child(child);

    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
        FAIL("child: wait status %#x", status);
}

static void fork_and_check(void) {
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0)
        child_main();
    check_seven(child);
}

static void parent_is_unaffected(struct ibv_mr *mr) {
    struct outcome outcome;

    CHECK_EQ(mr->length, 2 * PAGE);
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, buffer, PAGE)), 0);
    outcome_init(&outcome);
    CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, outcome_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(outcome.status, 0);
    CHECK_EQ(ibv_dereg_mr(outcome.mr), 0);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    outcome_end(&outcome);
}

/* Workers are in verbs calls, more is queued, and completions are unread. */
static void while_busy(void) {
    struct pollfd pollfd = {.fd = amr_cq_fd(cq), .events = POLLIN};
    struct outcome outcomes[8];
    struct amr_wc wc[9];

    post_reg(cq, 0, device.pd, buffer, PAGE);
    CHECK_EQ(poll(&pollfd, 1, -1), 1);
    sim_gate_close(SIM_REG);
    for (int i = 0; i < 8; i++) {
        post_reg(cq, 1 + (uint64_t)i, device.pd, buffer, PAGE);
        outcome_init(&outcomes[i]);
        CHECK_EQ(
            amr_register_async(device.pd, buffer, PAGE, ACCESS, outcome_callback, &outcomes[i]), 0);
    }
    wait_running(2);
    fork_and_check();
    CHECK_EQ(amr_drain(engine, NULL, 0), ETIMEDOUT);
    CHECK_EQ(poll(&pollfd, 1, 0), 1);
    sim_gate_open();
    read_wcs(cq, wc, 9);
    for (int i = 0; i < 9; i++)
        CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
    for (int i = 0; i < 8; i++) {
        outcome_wait(&outcomes[i]);
        CHECK_EQ(ibv_dereg_mr(outcomes[i].mr), 0);
    }
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    for (int i = 0; i < 8; i++)
        outcome_end(&outcomes[i]);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
}

static void forking_callback(struct ibv_mr *mr, int status, void *ctx) {
    CHECK_EQ(status, 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    fork_and_check();
    outcome_callback(NULL, 0, ctx);
}

static void from_a_callback(void) {
    struct outcome outcome;

    outcome_init(&outcome);
    CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, forking_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    outcome_end(&outcome);
}

int main(void) {
    struct ibv_mr *mr;

    device = open_device();
    buffer = map_pages(2 * PAGE);
    engine = new_engine(2, 64);
    cq = new_cq(engine, 16);
    mr = reg(cq, device.pd, buffer, 2 * PAGE);

    /* Before and after the parent has a default engine. */
    fork_and_check();
    parent_is_unaffected(mr);
    fork_and_check();
    from_a_callback();
    parent_is_unaffected(mr);
    if (sim_present())
        for (int i = 0; i < 20; i++)
            while_busy();
    parent_is_unaffected(mr);

    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
