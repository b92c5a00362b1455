/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A callback may call anything; what would wait for the callback's own return says EDEADLK, and
 * the same on another engine works. F58.
 */
#include "device.h"

static struct device device;
static char *buffer;
static struct amr_engine *other;
static struct amr_cq *own_cq, *other_cq;
static struct outcome inner;

static void callback(struct ibv_mr *mr, int status, void *ctx) {
    struct amr_wc wc;
    struct amr_cq *cq;

    CHECK_EQ(status, 0);
    CHECK_EQ(amr_drain(NULL, NULL, -1), EDEADLK);
    CHECK_EQ(amr_drain(amr_default_engine(), device.pd, -1), EDEADLK);
    CHECK_EQ(amr_wait_cq(own_cq, 1, &wc, -1), -EDEADLK);
    CHECK_EQ(amr_destroy_engine(amr_default_engine()), EDEADLK);

    CHECK_EQ(amr_poll_cq(own_cq, 1, &wc), 0);
    CHECK(amr_cq_fd(own_cq) >= 0);
    CHECK_EQ(amr_cancel(own_cq, 1), ENOENT);
    CHECK_EQ(stats_of(NULL).submitted, 1);
    cq = new_cq(NULL, 1);
    CHECK_EQ(amr_destroy_cq(cq), 0);

    CHECK_EQ(ibv_dereg_mr(reg(other_cq, device.pd, buffer, PAGE)), 0);
    CHECK_EQ(amr_drain(other, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(other_cq), 0);
    CHECK_EQ(amr_destroy_engine(other), 0);

    post_reg(own_cq, 2, device.pd, buffer, PAGE);
    CHECK_EQ(amr_deregister_async(mr, outcome_callback, &inner), 0);
    outcome_callback(NULL, 0, ctx);
}

int main(void) {
    struct outcome outer;

    device = open_device();
    buffer = map_pages(PAGE);
    outcome_init(&outer);
    outcome_init(&inner);
    own_cq = new_cq(NULL, 1);
    other = new_engine(1, 0);
    other_cq = new_cq(other, 1);

    CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, callback, &outer), 0);
    outcome_wait(&outer);
    outcome_wait(&inner);
    CHECK_EQ(inner.status, 0);
    CHECK_EQ(ibv_dereg_mr(read_wc(own_cq).mr), 0);

    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    outcome_end(&outer);
    outcome_end(&inner);
    CHECK_EQ(amr_destroy_cq(own_cq), 0);
    close_device(device);
    return 0;
}
