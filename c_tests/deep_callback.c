/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stack that a callback has. */
#include "device.h"

static struct device device;
static void *buffer;

/* Of the 256 KiB that a worker's stack has, nearly all are the callback's. */
static void deep_callback(struct ibv_mr *mr, int status, void *ctx) {
    volatile char deep[200 * 1024];

    for (size_t i = 0; i < sizeof(deep); i += 1024)
        deep[i] = 0;
    outcome_callback(mr, status + deep[1024], ctx);
}

static void deep_stack(void) {
    struct outcome outcome;

    outcome_init(&outcome);
    CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, deep_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(outcome.status, 0);
    CHECK_EQ(ibv_dereg_mr(outcome.mr), 0);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    outcome_end(&outcome);
}

int main(void) {
    device = open_sim();
    buffer = map_pages(PAGE);
    deep_stack();
    close_device(device);
    return 0;
}
