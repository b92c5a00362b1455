/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A thousand requests in one call: each completes once, as itself. */
#include "device.h"

enum { COUNT = 1000 };

static struct amr_wr wr[COUNT];
static struct amr_wc wc[COUNT];
static struct ibv_mr *mrs[COUNT];

static uint64_t id_of(size_t i) {
    return UINT64_MAX - i * 3;
}

static size_t index_of(uint64_t id) {
    size_t i = (size_t)((UINT64_MAX - id) / 3);

    CHECK(i < COUNT && id_of(i) == id);
    return i;
}

static void post_all(struct amr_cq *cq) {
    size_t posted = 0;

    CHECK_EQ(amr_post(cq, wr, COUNT, &posted), 0);
    CHECK_EQ(posted, COUNT);
    /* The requests were read in the call. */
    memset(wr, 0xff, sizeof(wr));
    memset(wc, 0xff, sizeof(wc));
    read_wcs(cq, wc, COUNT);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    check_empty(cq);
}

static void check_wc(const struct amr_wc *got, uint32_t opcode) {
    CHECK_EQ(got->opcode, opcode);
    CHECK_EQ(got->status, 0);
    CHECK_EQ(got->diag, AMR_DIAG_NONE);
    CHECK_EQ(got->diag_arg, 0);
    CHECK_EQ(got->reserved0, 0);
    CHECK_EQ(got->populate_ns, 0);
}

int main(void) {
    struct device device = open_device();
    char *buffer = map_pages(COUNT * PAGE);
    struct amr_cq *cq = new_cq(NULL, COUNT);
    size_t order[COUNT];

    for (size_t i = 0; i < COUNT; i++)
        wr[i] = reg_wr(id_of(i), device.pd, buffer + i * PAGE, i + 1, ACCESS);
    post_all(cq);
    for (size_t n = 0; n < COUNT; n++) {
        size_t i = index_of(wc[n].wr_id);

        check_wc(&wc[n], AMR_OP_REG_MR);
        CHECK(mrs[i] == NULL);
        mrs[i] = wc[n].mr;
        CHECK(mrs[i] != NULL);
        CHECK(mrs[i]->pd == device.pd);
        CHECK(mrs[i]->addr == buffer + i * PAGE);
        CHECK_EQ(mrs[i]->length, i + 1);
        order[n] = i;
    }
    for (size_t i = 0; i < COUNT; i++)
        for (size_t j = 0; j < i; j++)
            CHECK(mrs[i]->lkey != mrs[j]->lkey && mrs[i]->rkey != mrs[j]->rkey);

    for (size_t n = 0; n < COUNT; n++)
        wr[n] = dereg_wr(id_of(order[n]), mrs[order[n]]);
    post_all(cq);
    for (size_t n = 0; n < COUNT; n++) {
        check_wc(&wc[n], AMR_OP_DEREG_MR);
        CHECK(wc[n].mr == NULL);
        CHECK(mrs[index_of(wc[n].wr_id)] != NULL);
        mrs[index_of(wc[n].wr_id)] = NULL;
    }

    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
