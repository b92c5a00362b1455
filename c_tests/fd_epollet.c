/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Edge-triggered epoll: who reads until the queue is empty after each wake never misses one. A
 * lost wake shows as a test that does not end.
 */
#include "device.h"

enum { ROUNDS = 20000, IN_FLIGHT = 8 };

static int read_until_empty(struct amr_cq *cq, unsigned char *seen) {
    struct amr_wc wc[3];
    int total = 0, got;

    while ((got = amr_poll_cq(cq, ARRAY_SIZE(wc), wc)) > 0) {
        for (int i = 0; i < got; i++) {
            CHECK_EQ(wc[i].status, 0);
            CHECK(wc[i].wr_id < ROUNDS);
            CHECK_EQ(seen[wc[i].wr_id]++, 0);
            CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
        }
        total += got;
    }
    CHECK_EQ(got, 0);
    return total;
}

int main(void) {
    static unsigned char seen[ROUNDS];
    struct device device = open_device();
    void *buffer = map_pages(PAGE);
    struct amr_cq *cq = new_cq(NULL, IN_FLIGHT);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    int rounds = sim_present() ? ROUNDS : ROUNDS / 20;
    int posted = 0, done = 0;

    CHECK(epoll >= 0);
    CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, amr_cq_fd(cq), &event), 0);
    while (done < rounds) {
        while (posted < rounds && posted - done < IN_FLIGHT)
            post_reg(cq, (uint64_t)posted++, device.pd, buffer, PAGE);
        wait_epoll(epoll);
        done += read_until_empty(cq, seen);
    }
    CHECK_EQ(done, rounds);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    check_empty(cq);

    close(epoll);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
