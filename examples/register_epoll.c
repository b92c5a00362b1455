/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An event loop that never stops: a timer ticks each millisecond while 64
 * buffers are registered and, each as soon as it is, deregistered again.
 *
 * Usage: register_epoll [DEVICE]
 */
#define _GNU_SOURCE
#include "common/helper.h"
#include <amr/amr.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { BUFFERS = 64 };
static const size_t SIZE = (size_t)4 << 20;

struct app {
    struct ibv_pd *pd;
    struct amr_cq *cq;
    char *memory;
    int registered[BUFFERS];   /* how many times each completed: once is right */
    int deregistered[BUFFERS]; /* likewise */
    int left;                  /* buffers whose deregistration is still to come */
    int ticks;
    double last_tick, longest_pause; /* in ms */
};

/* There is room: the queue takes BUFFERS requests, and the engine many more. See batch.c
 * for what to do with EAGAIN where there may be none. */
static void post(struct app *app, const struct amr_wr *wr, size_t count) {
    int error = amr_post(app->cq, wr, count, NULL);
    if (error)
        errx(1, "amr_post: %s", amr_status_str(error));
}

static void post_registrations(struct app *app) {
    struct amr_wr wr[BUFFERS] = {0};
    for (size_t i = 0; i < BUFFERS; i++) {
        wr[i].wr_id = i;
        wr[i].opcode = AMR_OP_REG_MR;
        wr[i].op.reg_mr.pd = app->pd;
        wr[i].op.reg_mr.addr = app->memory + i * SIZE;
        wr[i].op.reg_mr.length = SIZE;
        wr[i].op.reg_mr.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    }
    post(app, wr, BUFFERS);
    app->left = BUFFERS;
}

static void post_deregistration(struct app *app, uint64_t wr_id, struct ibv_mr *mr) {
    struct amr_wr wr = {.wr_id = wr_id, .opcode = AMR_OP_DEREG_MR};
    wr.op.dereg_mr.mr = mr;
    post(app, &wr, 1);
}

static void on_completion(struct app *app, const struct amr_wc *wc) {
    if (wc->status) {
        char text[512];
        amr_explain(wc, text, sizeof(text));
        errx(1, "buffer %d: %s", (int)wc->wr_id, text);
    }
    if (wc->opcode == AMR_OP_REG_MR) {
        app->registered[wc->wr_id]++;
        post_deregistration(app, wc->wr_id, wc->mr);
    } else {
        app->deregistered[wc->wr_id]++;
        app->left--;
    }
}

/* The descriptor stays readable while anything is left to read, so one batch will do. */
static void on_cq_readable(struct app *app) {
    struct amr_wc wc[16];
    int count = amr_poll_cq(app->cq, 16, wc);
    if (count < 0)
        errx(1, "amr_poll_cq: %s", amr_status_str(-count));
    for (int i = 0; i < count; i++)
        on_completion(app, &wc[i]);
}

static void on_tick(struct app *app, int timer) {
    uint64_t expirations;
    if (read(timer, &expirations, sizeof(expirations)) != sizeof(expirations))
        return;
    double now = now_ms(), pause = now - app->last_tick;
    app->longest_pause = pause > app->longest_pause ? pause : app->longest_pause;
    app->last_tick = now;
    app->ticks++;
}

static void watch(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
        err(1, "epoll_ctl");
}

static int start_timer(void) {
    const struct itimerspec each_ms = {{0, 1000000}, {0, 1000000}};
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (timer < 0 || timerfd_settime(timer, 0, &each_ms, NULL))
        err(1, "timerfd");
    return timer;
}

static void run_loop(struct app *app) {
    int epoll = epoll_create1(EPOLL_CLOEXEC), timer = start_timer();
    if (epoll < 0)
        err(1, "epoll_create1");
    watch(epoll, timer);
    watch(epoll, amr_cq_fd(app->cq));

    app->last_tick = now_ms();
    post_registrations(app);
    while (app->left > 0) {
        struct epoll_event events[2];
        int count = epoll_wait(epoll, events, 2, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == timer)
                on_tick(app, timer);
            else
                on_cq_readable(app);
        }
    }
    close(timer);
    close(epoll);
}

static void check_each_once(struct app *app) {
    struct amr_wc wc;
    for (int i = 0; i < BUFFERS; i++) {
        if (app->registered[i] != 1 || app->deregistered[i] != 1)
            errx(1, "buffer %d: %d registrations and %d deregistrations completed", i,
                 app->registered[i], app->deregistered[i]);
    }
    if (amr_poll_cq(app->cq, 1, &wc) != 0)
        errx(1, "a completion that nobody asked for");
}

int main(int argc, char **argv) {
    struct app app = {.pd = open_pd(argc > 1 ? argv[1] : NULL)};
    app.cq = amr_create_cq(NULL, BUFFERS);
    app.memory = malloc(BUFFERS * SIZE);
    if (!app.cq || !app.memory)
        err(1, "cannot create the queue or the buffers");

    double start = now_ms();
    run_loop(&app);
    double duration = now_ms() - start;
    check_each_once(&app);
    printf("%d buffers of %zu MiB registered and deregistered, each exactly once, in %.1f ms\n",
           BUFFERS, SIZE >> 20, duration);
    printf("meanwhile the loop took %d ticks of its timer, at most %.1f ms apart\n", app.ticks,
           app.longest_pause);

    int error = amr_destroy_cq(app.cq);
    if (error)
        errx(1, "amr_destroy_cq: %s", amr_status_str(error));
    close_pd(app.pd);
    free(app.memory);
    return 0;
}
