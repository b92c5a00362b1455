/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Callbacks that submit: ten thousand registrations, each from the callback of the one before, all
 * on one worker and all failing, use no more stack and wait for nothing. F7.
 */
#include "device.h"

enum { LENGTH = 10000 };

static struct device device;
static void *buffer;
static int expected_status;
static int links;
static uintptr_t lowest, highest;
static sem_t ended;

static void link_callback(struct ibv_mr *mr, int status, void *ctx) {
    char on_the_stack;
    uintptr_t here = (uintptr_t)&on_the_stack;

    (void)ctx;
    CHECK_EQ(status, expected_status);
    if (mr != NULL)
        CHECK_EQ(ibv_dereg_mr(mr), 0);
    if (links == 0)
        lowest = highest = here;
    lowest = here < lowest ? here : lowest;
    highest = here > highest ? here : highest;
    if (++links == LENGTH)
        sem_post(&ended);
    else
        CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, link_callback, NULL), 0);
}

static void chain(int status) {
    expected_status = status;
    links = 0;
    CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, link_callback, NULL), 0);
    sem_wait(&ended);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    CHECK_EQ(links, LENGTH);
    CHECK(highest - lowest < 4096);
}

int main(void) {
    CHECK_EQ(setenv("AMR_WORKERS", "1", 1), 0);
    CHECK_EQ(setenv("AMR_QUEUE_DEPTH", "1", 1), 0);
    device = open_sim();
    buffer = map_pages(PAGE);
    CHECK_EQ(sem_init(&ended, 0, 0), 0);
    CHECK_EQ(stats_of(NULL).workers, 1);

    chain(0);
    CHECK_EQ(sim_configure("fail_after=0:ENOMEM"), 0);
    chain(ENOMEM);
    CHECK_EQ(sim_counts().live_mrs, 0);
    close_device(device);
    return 0;
}
