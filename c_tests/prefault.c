/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Memory is faulted in before the verbs call, unless that was declined; what is in it stays as it
 * is; and the completion tells how long that took.
 */
#include "residency.h"

static struct device device;

static char pattern(size_t i) {
    return (char)(i * 31 + i / PAGE);
}

/* Every third page is written to before, and all of them hold the same afterwards. */
static void contents_stay(struct amr_cq *cq) {
    size_t length = 16 * MIB + 3 * PAGE;
    char *pages = map_pages(length);
    char *start = pages + PAGE + 8;
    struct amr_wc wc;

    for (size_t i = 0; i < length; i++)
        if (i / PAGE % 3 == 0)
            pages[i] = pattern(i);
    post_reg(cq, 1, device.pd, start, length - PAGE - 16);
    wc = read_wc(cq);
    CHECK_EQ(wc.status, 0);
    CHECK(wc.mr->addr == start);
    CHECK_EQ(wc.mr->length, length - PAGE - 16);
    CHECK(wc.populate_ns > 0);
    CHECK(wc.busy_ns >= wc.populate_ns);
    for (size_t i = 0; i < length; i++)
        CHECK_EQ(pages[i], i / PAGE % 3 == 0 ? pattern(i) : 0);
    CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    CHECK_EQ(munmap(pages, length), 0);
}

/* When the device is called, all pages are there; or none. */
static void before_the_call(struct amr_cq *cq, uint32_t flags, int expected) {
    size_t length = 8 * MIB;
    char *pages = map_pages(length);
    struct amr_wr wr = reg_wr(1, device.pd, pages, length, ACCESS);
    struct amr_wc wc;

    wr.flags = flags;
    hold_registration(cq, wr);
    CHECK_EQ(resident_pages(pages, length), expected ? length / PAGE : 0);
    wc = release_registration(cq);
    CHECK_EQ(wc.status, 0);
    CHECK_EQ(wc.populate_ns > 0, expected);
    CHECK_EQ(munmap(pages, length), 0);
}

static void on_demand_is_left_alone(struct amr_cq *cq) {
    size_t length = 8 * MIB;
    char *pages = map_pages(length);

    CHECK_EQ(sim_configure("odp=1"), 0);
    hold_registration(cq, reg_wr(1, device.pd, pages, length, ACCESS | IBV_ACCESS_ON_DEMAND));
    CHECK_EQ(resident_pages(pages, length), 0);
    CHECK_EQ(release_registration(cq).status, 0);
    reset_sim();
    CHECK_EQ(munmap(pages, length), 0);
}

static void engine_that_declines(void) {
    struct amr_engine_attr attr;
    struct amr_engine *engine;
    struct amr_cq *cq;

    memset(&attr, 0, sizeof(attr));
    attr.size = sizeof(attr);
    attr.flags = AMR_ENGINE_NO_PREFAULT;
    engine = amr_create_engine(&attr);
    CHECK(engine != NULL);
    cq = new_cq(engine, 1);
    before_the_call(cq, 0, 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

static void stats_add_up(void) {
    struct amr_engine *engine = new_engine(2, 16);
    struct amr_cq *cq = new_cq(engine, 4);
    char *pages = map_pages(12 * MIB);
    uint64_t sum = 0, most = 0;

    for (uint64_t i = 0; i < 3; i++) {
        struct amr_wc wc;

        post_reg(cq, i, device.pd, pages + i * 4 * MIB, 4 * MIB);
        wc = read_wc(cq);
        CHECK_EQ(wc.status, 0);
        sum += wc.populate_ns;
        most = wc.populate_ns > most ? wc.populate_ns : most;
        CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    }
    CHECK_EQ(stats_of(engine).populate_ns_total, sum);
    CHECK_EQ(stats_of(engine).populate_ns_max, most);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    CHECK_EQ(munmap(pages, 12 * MIB), 0);
}

int main(void) {
    struct amr_cq *cq;

    device = open_pinning_device();
    cq = new_cq(NULL, 4);
    contents_stay(cq);
    stats_add_up();
    if (sim_present()) {
        before_the_call(cq, 0, 1);
        before_the_call(cq, AMR_WR_NO_PREFAULT, 0);
        on_demand_is_left_alone(cq);
        engine_that_declines();
    }
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
