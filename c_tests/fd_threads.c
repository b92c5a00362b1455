/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Four threads wait on one queue's descriptor: each completion goes to exactly one of them, who
 * comes too late reads nothing, and in the end all is quiet. F63.
 */
#include "device.h"

#include <pthread.h>
#include <sys/eventfd.h>

enum { COUNT = 20000, THREADS = 4, CAPACITY = 64 };

static struct amr_cq *cq;
static int stop;
static int seen[COUNT];
static int done;

static int new_epoll(void) {
    struct epoll_event completion = {.events = EPOLLIN};
    struct epoll_event end = {.events = EPOLLIN, .data.u32 = 1};
    int epoll = epoll_create1(EPOLL_CLOEXEC);

    CHECK(epoll >= 0);
    CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, amr_cq_fd(cq), &completion), 0);
    CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, stop, &end), 0);
    return epoll;
}

static void *reader(void *arg) {
    int epoll = new_epoll();

    for (;;) {
        struct amr_wc wc[5];
        int got;

        if (wait_epoll(epoll).data.u32 == 1)
            break;
        got = amr_poll_cq(cq, ARRAY_SIZE(wc), wc);
        CHECK(got >= 0);
        for (int i = 0; i < got; i++) {
            CHECK_EQ(wc[i].status, 0);
            CHECK(wc[i].wr_id < COUNT);
            CHECK_EQ(__atomic_fetch_add(&seen[wc[i].wr_id], 1, __ATOMIC_RELAXED), 0);
            CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
        }
        __atomic_add_fetch(&done, got, __ATOMIC_RELEASE);
    }
    close(epoll);
    return arg;
}

int main(void) {
    struct device device = open_sim();
    void *buffer = map_pages(PAGE);
    pthread_t threads[THREADS];
    struct epoll_event event;
    int epoll;

    cq = new_cq(NULL, CAPACITY);
    stop = eventfd(0, EFD_CLOEXEC);
    CHECK(stop >= 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, reader, NULL), 0);

    for (uint64_t id = 0; id < COUNT; id++) {
        struct amr_wr wr = reg_wr(id, device.pd, buffer, PAGE, ACCESS);
        int status;

        while ((status = amr_post(cq, &wr, 1, NULL)) == EAGAIN)
            usleep(10);
        CHECK_EQ(status, 0);
    }
    while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < COUNT)
        usleep(100);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);

    epoll = new_epoll();
    CHECK_EQ(epoll_wait(epoll, &event, 1, 0), 0);
    check_empty(cq);
    CHECK_EQ(eventfd_write(stop, 1), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(done, COUNT);

    close(epoll);
    close(stop);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
