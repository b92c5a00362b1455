/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Every combination of the access bits that all devices know: refused at submit is what lets a peer
 * change the memory and the device not, all else is registered. F13.
 */
#include "device.h"

int main(void) {
    static const unsigned writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    struct device device = open_device();
    struct amr_cq *cq = new_cq(NULL, 4);
    void *buffer = map_pages(2 * PAGE);

    for (unsigned access = 0; access < 16; access++) {
        struct amr_wr wr = reg_wr(access, device.pd, buffer, 2 * PAGE, access);
        struct amr_wc wc;

        if ((access & writes) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) {
            CHECK_EQ(amr_post(cq, &wr, 1, NULL), EINVAL);
            continue;
        }
        post(cq, wr);
        wc = read_wc(cq);
        CHECK_EQ(wc.status, 0);
        CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    }
    check_empty(cq);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
