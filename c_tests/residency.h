/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Which pages of a mapping are in memory. */
#ifndef AMR_RESIDENCY_H
#define AMR_RESIDENCY_H

#include "device.h"

#define MIB ((size_t)1 << 20)

/* How many pages of the mapped range are in memory. */
static inline size_t resident_pages(void *addr, size_t length) {
    size_t pages = length / PAGE, resident = 0;
    unsigned char *state = (unsigned char *)malloc(pages);

    CHECK(state != NULL);
    CHECK_EQ(mincore(addr, length, state), 0);
    for (size_t i = 0; i < pages; i++)
        resident += state[i] & 1;
    free(state);
    return resident;
}

/* Posts a registration and holds it where the device would begin to work. */
static inline void hold_registration(struct amr_cq *cq, struct amr_wr wr) {
    sim_gate_close(SIM_REG);
    post(cq, wr);
    wait_running(1);
}

/* Lets it go on, and says how it ended; nothing stays registered. */
static inline struct amr_wc release_registration(struct amr_cq *cq) {
    struct amr_wc wc;

    sim_gate_open();
    wc = read_wc(cq);
    if (wc.status == 0)
        CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    return wc;
}

#endif /* AMR_RESIDENCY_H */
