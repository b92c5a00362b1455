/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The descriptor of a completion queue is readable exactly while a completion is unread, however
 * it is watched and whenever it was asked for. F61.
 */
#include "device.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/select.h>

enum { COUNT = 1000 };

static struct device device;
static void *buffer;
static int epoll;

static int is_readable(int fd) {
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    struct timeval none = {0};
    struct epoll_event event;
    fd_set set;
    int by_poll = poll(&pollfd, 1, 0);

    CHECK(by_poll == 0 || pollfd.revents == POLLIN);
    FD_ZERO(&set);
    FD_SET(fd, &set);
    CHECK_EQ(select(fd + 1, &set, NULL, NULL, &none), by_poll);
    CHECK_EQ(epoll_wait(epoll, &event, 1, 0), by_poll);
    return by_poll;
}

static void watch(int fd) {
    struct epoll_event event = {.events = EPOLLIN};

    CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
}

static int fd_of(struct amr_cq *cq) {
    int fd = amr_cq_fd(cq);

    CHECK(fd >= 0);
    CHECK_EQ(amr_cq_fd(cq), fd);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    return fd;
}

/* All are done before the first is read. */
static void complete_all(struct amr_cq *cq) {
    static struct amr_wr wr[COUNT];

    for (size_t i = 0; i < COUNT; i++)
        wr[i] = reg_wr(i, device.pd, buffer, PAGE, ACCESS);
    CHECK_EQ(amr_post(cq, wr, COUNT, NULL), 0);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
}

static void read_in_batches(struct amr_cq *cq, int fd, int batch) {
    struct amr_wc wc[COUNT];
    int unread = COUNT;

    while (unread > 0) {
        int got;

        CHECK(is_readable(fd));
        got = amr_poll_cq(cq, batch, wc);
        CHECK_EQ(got, batch < unread ? batch : unread);
        unread -= got;
        for (int i = 0; i < got; i++)
            CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
    }
    /* Also if the last batch was a full one. */
    CHECK(!is_readable(fd));
    CHECK_EQ(amr_poll_cq(cq, batch, wc), 0);
    CHECK(!is_readable(fd));
}

static void asked_for_early(void) {
    static const int batches[] = {16, 1, 10, COUNT, 7};
    struct amr_cq *cq = new_cq(NULL, COUNT);
    int fd = fd_of(cq);

    watch(fd);
    CHECK(!is_readable(fd));
    for (size_t i = 0; i < ARRAY_SIZE(batches); i++) {
        complete_all(cq);
        read_in_batches(cq, fd, batches[i]);
    }
    CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(fcntl(fd, F_GETFD), -1);
}

static void asked_for_late(void) {
    struct amr_cq *cq = new_cq(NULL, COUNT);
    int fd;

    complete_all(cq);
    fd = fd_of(cq);
    watch(fd);
    read_in_batches(cq, fd, 16);
    CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
}

/* Reading by amr_wait_cq clears as well. */
static void read_by_waiting(void) {
    struct amr_cq *cq = new_cq(NULL, COUNT);
    int fd = fd_of(cq);

    watch(fd);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, buffer, PAGE)), 0);
        /* The worker that delivered it may not be done with the descriptor yet. */
        CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
        CHECK(!is_readable(fd));
    }
    CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
}

/* Who polls all the time may read a completion before the descriptor became readable by it. */
static void read_by_spinning(void) {
    struct amr_cq *cq = new_cq(NULL, 1);
    int rounds = sim_present() ? 2000 : 200;
    int fd = fd_of(cq);

    watch(fd);
    for (int i = 0; i < rounds; i++) {
        struct amr_wc wc;
        int got;

        post_reg(cq, (uint64_t)i, device.pd, buffer, PAGE);
        while ((got = amr_poll_cq(cq, 1, &wc)) == 0)
            sched_yield();
        CHECK_EQ(got, 1);
        CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
        CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
        CHECK(!is_readable(fd));
    }
    CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
}

int main(void) {
    device = open_device();
    buffer = map_pages(PAGE);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epoll >= 0);
    asked_for_early();
    asked_for_late();
    read_by_waiting();
    read_by_spinning();
    close_device(device);
    return 0;
}
