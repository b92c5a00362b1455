/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Small and urgent requests do not wait for large ones: not for their slices, not for their calls;
 * large ones get on beside a flood of small ones, and the application beside both.
 */
#include "residency.h"

#include <pthread.h>

enum { SMALL = 20, LARGE = 3 };

static struct device device;
static struct amr_engine *engine;
static struct amr_cq *cq;
static char *large, *small;

static struct amr_wr request(uint64_t wr_id, char *addr, size_t length, uint32_t flags) {
    struct amr_wr wr = reg_wr(wr_id, device.pd, addr, length, ACCESS);

    wr.flags = flags;
    return wr;
}

static void start(uint32_t workers) {
    engine = new_engine(workers, 1024);
    cq = new_cq(engine, 1024);
}

static void end(void) {
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    reset_sim();
}

/* One worker; the large request comes first and has 64 slices. */
static void slices_are_overtaken(void) {
    struct amr_wr wr[4];
    struct amr_wc wc[4];
    int place[5] = {0};

    start(1);
    wr[0] = request(1, large, 128 * MIB, 0);
    wr[1] = request(2, large + 128 * MIB, 4 * MIB, AMR_WR_URGENT);
    wr[2] = request(3, small, PAGE, 0);
    wr[3] = request(4, small, PAGE, AMR_WR_URGENT);
    CHECK_EQ(amr_post(cq, wr, ARRAY_SIZE(wr), NULL), 0);
    read_wcs(cq, wc, 4);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(wc[i].status, 0);
        CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
        place[wc[i].wr_id] = i;
    }
    CHECK_EQ(place[1], 3);
    CHECK(place[4] < place[3]);
    end();
}

static void expect_small_first(void) {
    struct amr_wc wc;

    for (int i = 0; i < SMALL + LARGE; i++) {
        wc = read_wc(cq);
        CHECK_EQ(wc.status, 0);
        CHECK_EQ(wc.wr_id < SMALL, i < SMALL);
        if (wc.mr != NULL)
            CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    }
}

/* Two workers; a call for a large region takes half a second. */
static void calls_are_overtaken(void) {
    struct ibv_mr *mrs[LARGE];

    start(2);
    CHECK_EQ(sim_configure("pins=0,slow_len=64m:500000"), 0);
    for (int i = 0; i < LARGE; i++)
        post(cq, request(SMALL, large, 64 * MIB, AMR_WR_NO_PREFAULT));
    wait_running(1);
    for (uint64_t i = 0; i < SMALL; i++)
        post(cq, request(i, small, PAGE, 0));
    expect_small_first();

    CHECK_EQ(sim_configure("pins=0"), 0);
    for (int i = 0; i < LARGE; i++)
        mrs[i] = reg(cq, device.pd, large, 64 * MIB);
    CHECK_EQ(sim_configure("pins=0,slow_len=64m:500000"), 0);
    for (int i = 0; i < LARGE; i++)
        post(cq, dereg_wr(SMALL, mrs[i]));
    wait_running(1);
    for (uint64_t i = 0; i < SMALL; i++)
        post(cq, request(i, small, PAGE, 0));
    expect_small_first();
    end();
}

static void *flood(void *context) {
    int *over = context;
    struct amr_cq *own = new_cq(engine, 64);
    struct amr_wr wr[16];
    struct amr_wc wc[16];

    while (!__atomic_load_n(over, __ATOMIC_ACQUIRE)) {
        for (int i = 0; i < 16; i++)
            wr[i] = request(0, small, PAGE, 0);
        CHECK_EQ(amr_post(own, wr, 16, NULL), 0);
        read_wcs(own, wc, 16);
        for (int i = 0; i < 16; i++)
            wr[i] = dereg_wr(0, wc[i].mr);
        CHECK_EQ(amr_post(own, wr, 16, NULL), 0);
        read_wcs(own, wc, 16);
    }
    CHECK_EQ(amr_destroy_cq(own), 0);
    return NULL;
}

/* One worker, which always has small requests to do. */
static void large_ones_get_on(void) {
    pthread_t threads[2];
    int over = 0;

    start(1);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, flood, &over), 0);
    for (int i = 0; i < LARGE; i++)
        CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, large, 8 * MIB)), 0);
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    end();
}

/* While much memory is faulted in, the application maps, touches and unmaps memory as it likes. */
static void application_gets_on(void) {
    const size_t length = 512 * MIB;
    char *fresh = map_pages(length);
    struct amr_wc wc;
    int count = 0;

    start(2);
    post(cq, request(1, fresh, length, 0));
    while (amr_poll_cq(cq, 1, &wc) == 0) {
        char *pages = map_pages(16 * PAGE);

        memset(pages, 1, 16 * PAGE);
        CHECK_EQ(munmap(pages, 16 * PAGE), 0);
        count++;
    }
    CHECK_EQ(wc.status, 0);
    CHECK(count >= 10);
    CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    CHECK_EQ(munmap(fresh, length), 0);
    end();
}

int main(void) {
    device = open_sim();
    large = map_pages(136 * MIB);
    small = map_pages(PAGE);
    slices_are_overtaken();
    calls_are_overtaken();
    large_ones_get_on();
    application_gets_on();
    close_device(device);
    return 0;
}
