/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Odd parts of one buffer, registered and deregistered many times, leave no mapping behind. F26. */
#include "device.h"

enum { PAGES = 256, ROUNDS = 10000, IN_FLIGHT = 16 };

static uint64_t map_count(void) {
    struct amr_limits limits = {.size = sizeof(limits)};

    CHECK_EQ(amr_query_limits(NULL, &limits), 0);
    return limits.map_count;
}

int main(void) {
    struct device device = open_device();
    char *buffer = map_pages(PAGES * PAGE);
    struct amr_cq *cq = new_cq(NULL, 2 * IN_FLIGHT);
    int rounds = sim_present() ? ROUNDS : ROUNDS / 10;
    uint64_t baseline = 0;
    int posted = 0, gone = 0;

    while (gone < rounds) {
        struct amr_wc wc;

        for (; posted < rounds && posted - gone < IN_FLIGHT; posted++) {
            size_t first = (size_t)posted * 7919 % (PAGES - 1);
            size_t length = (1 + (size_t)posted * 104729 % (PAGES - first)) * PAGE;

            post_reg(cq, (uint64_t)posted, device.pd, buffer + first * PAGE, length);
        }
        wc = read_wc(cq);
        CHECK_EQ(wc.status, 0);
        if (wc.opcode == AMR_OP_REG_MR)
            post(cq, dereg_wr(wc.wr_id, wc.mr));
        else
            gone++;
        if (gone == rounds / 2 && baseline == 0)
            baseline = map_count();
    }
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    check_empty(cq);
    /* Some regions were alive when the baseline was taken, and a heap may grow. */
    CHECK(map_count() <= baseline + 8);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
