/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What amr_post refuses: nothing reaches the device, and what came before is taken. F13 F20 F21. */
#include "device.h"

#include <limits.h>

static struct device device;
static struct amr_cq *cq;
static char *buffer;

static void expect_refused(const char *what, struct amr_wr wr) {
    size_t posted = 99;
    uint64_t calls = verbs_calls();
    int status = amr_post(cq, &wr, 1, &posted);

    if (status != EINVAL || posted != 0)
        FAIL("%s: status %d, posted %zu", what, status, posted);
    CHECK_EQ(amr_post(cq, &wr, 1, NULL), EINVAL);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    check_empty(cq);
    if (verbs_calls() != calls)
        FAIL("%s: reached the device", what);
}

static struct amr_wr good(void) {
    return reg_wr(1, device.pd, buffer + 8, PAGE, ACCESS);
}

static struct amr_wr with_iova(uint64_t iova) {
    struct amr_wr wr = good();

    wr.flags = AMR_WR_IOVA;
    wr.op.reg_mr.iova = iova;
    return wr;
}

static void bad_operands(void) {
    struct {
        const char *what;
        struct ibv_pd *pd;
        void *addr;
        size_t length;
        unsigned access;
    } const table[] = {
        {"NULL pd", NULL, buffer, PAGE, ACCESS},
        {"length 0", device.pd, buffer, 0, ACCESS},
        {"length 0, unaligned", device.pd, buffer + 1, 0, ACCESS},
        {"length 0, NULL addr", device.pd, NULL, 0, ACCESS},
        {"NULL addr", device.pd, NULL, PAGE, ACCESS},
        {"NULL addr on demand", device.pd, NULL, PAGE, ACCESS | IBV_ACCESS_ON_DEMAND},
        {"NULL addr, SIZE_MAX", device.pd, NULL, SIZE_MAX, ACCESS},
        {"SIZE_MAX on demand, with addr", device.pd, buffer, SIZE_MAX,
         ACCESS | IBV_ACCESS_ON_DEMAND},
        {"overflow", device.pd, buffer, SIZE_MAX - (uintptr_t)buffer + 2, ACCESS},
        {"overflow at the top", device.pd, (void *)UINTPTR_MAX, 2, ACCESS},
        {"remote write alone", device.pd, buffer, PAGE, IBV_ACCESS_REMOTE_WRITE},
        {"remote atomic alone", device.pd, buffer, PAGE, IBV_ACCESS_REMOTE_ATOMIC},
    };

    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        expect_refused(table[i].what,
                       reg_wr(i, table[i].pd, table[i].addr, table[i].length, table[i].access));
    expect_refused("NULL mr", dereg_wr(1, NULL));
}

static void bad_iova(void) {
    struct amr_wr wr = with_iova((uintptr_t)buffer + 8);

    wr.flags = 0;
    expect_refused("iova without AMR_WR_IOVA", wr);
    expect_refused("iova with another offset in the page", with_iova(16));
    expect_refused("iova 0 for an unaligned addr", with_iova(0));
}

/* Each bit and opcode that means nothing yet must stay free for what will come. */
static void unknown_opcodes_and_flags(void) {
    static const uint32_t opcodes[] = {0, 3, 255, UINT32_MAX, INT_MAX};
    struct amr_wr wr;

    for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++) {
        wr = good();
        wr.opcode = opcodes[i];
        expect_refused("unknown opcode", wr);
    }
    for (int bit = 4; bit < 32; bit++) {
        wr = good();
        wr.flags = UINT32_C(1) << bit;
        expect_refused("unknown flag", wr);
    }
}

static void reserved_bytes(void) {
    struct ibv_mr *mr = ibv_reg_mr(device.pd, buffer, PAGE, ACCESS);
    size_t end_of_reg = offsetof(struct amr_reg_mr, access) + sizeof(uint32_t);
    struct amr_wr wr;

    CHECK(mr != NULL);
    for (size_t byte = end_of_reg; byte < sizeof(wr.op); byte++) {
        wr = good();
        ((unsigned char *)&wr.op)[byte] = 1;
        expect_refused("reserved byte of a registration", wr);
    }
    for (size_t byte = sizeof(struct amr_dereg_mr); byte < sizeof(wr.op); byte++) {
        wr = dereg_wr(1, mr);
        ((unsigned char *)&wr.op)[byte] = 0x80;
        expect_refused("reserved byte of a deregistration", wr);
    }
    for (uint32_t flag = AMR_WR_IOVA; flag < AMR_WR_URGENT; flag <<= 1) {
        wr = dereg_wr(1, mr);
        wr.flags = flag;
        expect_refused("the flag of a registration with a deregistration", wr);
    }
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void arguments(void) {
    struct amr_wr wr = good();
    size_t posted = 99;

    CHECK_EQ(amr_post(NULL, &wr, 1, &posted), EINVAL);
    CHECK_EQ(posted, 0);
    CHECK_EQ(amr_post(NULL, &wr, 1, NULL), EINVAL);
    posted = 99;
    CHECK_EQ(amr_post(cq, NULL, 1, &posted), EINVAL);
    CHECK_EQ(posted, 0);
    posted = 99;
    CHECK_EQ(amr_post(cq, NULL, 0, &posted), 0);
    CHECK_EQ(posted, 0);
    CHECK_EQ(amr_post(cq, &wr, 0, NULL), 0);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    check_empty(cq);
    CHECK_EQ(verbs_calls(), 0);
}

/* Requests before the bad one are taken, those after it are not. */
static void bad_one_in_a_batch(size_t bad) {
    enum { COUNT = 300 };
    static struct amr_wr wr[COUNT];
    static struct amr_wc wc[COUNT];
    static unsigned char seen[COUNT];
    size_t posted = 99;

    for (size_t i = 0; i < COUNT; i++)
        wr[i] = reg_wr(i, device.pd, buffer, PAGE, ACCESS);
    wr[bad].op.reg_mr.length = 0;
    memset(seen, 0, sizeof(seen));
    CHECK_EQ(amr_post(cq, wr, COUNT, &posted), EINVAL);
    CHECK_EQ(posted, bad);
    read_wcs(cq, wc, (int)bad);
    for (size_t i = 0; i < bad; i++) {
        CHECK_EQ(wc[i].status, 0);
        CHECK(wc[i].wr_id < bad);
        CHECK_EQ(seen[wc[i].wr_id]++, 0);
        CHECK_EQ(ibv_dereg_mr(wc[i].mr), 0);
    }
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    check_empty(cq);
}

int main(void) {
    static const size_t bad[] = {0, 1, 7, 63, 64, 65, 127, 128, 299};

    device = open_sim();
    buffer = map_pages(4 * PAGE);
    cq = new_cq(NULL, 300);
    arguments();
    bad_operands();
    bad_iova();
    unknown_opcodes_and_flags();
    reserved_bytes();
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        bad_one_in_a_batch(bad[i]);
    CHECK_EQ(sim_counts().live_mrs, 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
