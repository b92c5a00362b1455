/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A region under an address of the caller's choice. */
#include "device.h"

int main(void) {
    struct device device = open_device();
    char *buffer = map_pages(4 * PAGE);
    struct amr_cq *cq = new_cq(NULL, 4);
    static const uint64_t iovas[] = {123, 0x7000000000 + 123, UINT64_MAX - 3 * PAGE + 1 + 123};

    for (size_t i = 0; i < ARRAY_SIZE(iovas); i++) {
        struct amr_wr wr = reg_wr(i, device.pd, buffer + 123, 2 * PAGE, ACCESS);
        struct amr_wc wc;

        if (sim_present())
            sim_record(1);
        wr.flags = AMR_WR_IOVA;
        wr.op.reg_mr.iova = iovas[i];
        post(cq, wr);
        wc = read_wc(cq);
        CHECK_EQ(wc.status, 0);
        CHECK(wc.mr->addr == buffer + 123);
        CHECK_EQ(wc.mr->length, 2 * PAGE);
        if (sim_present()) {
            struct sim_call call;

            CHECK_EQ(sim_calls(&call, 1), 1);
            CHECK(call.addr == buffer + 123);
            CHECK_EQ(call.iova, iovas[i]);
        }
        post(cq, dereg_wr(i, wc.mr));
        CHECK_EQ(read_wc(cq).status, 0);
    }

    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
