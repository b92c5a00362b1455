/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A small program as a user would write it: registers a buffer and waits for it. */
#include <amr/amr.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    static char buffer[1 << 16];
    int status = 1;
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
    struct amr_cq *cq = amr_create_cq(NULL, 1);

    if (pd && cq) {
        struct pollfd fd = {amr_cq_fd(cq), POLLIN, 0};
        struct amr_wr wr;
        struct amr_wc wc;

        memset(&wr, 0, sizeof(wr));
        wr.wr_id = 42;
        wr.opcode = AMR_OP_REG_MR;
        wr.op.reg_mr.pd = pd;
        wr.op.reg_mr.addr = buffer;
        wr.op.reg_mr.length = sizeof(buffer);
        wr.op.reg_mr.access = IBV_ACCESS_LOCAL_WRITE;
        if (amr_post(cq, &wr, 1, NULL) == 0 && poll(&fd, 1, 10000) == 1 &&
            amr_poll_cq(cq, 1, &wc) == 1 && wc.wr_id == 42 && wc.status == 0) {
            printf("libamr %s: lkey %#x\n", amr_version(), (unsigned)wc.mr->lkey);
            status = ibv_dereg_mr(wc.mr);
        }
    }
    if (status)
        fprintf(stderr, "the buffer was not registered\n");
    if (cq)
        amr_destroy_cq(cq);
    if (pd)
        ibv_dealloc_pd(pd);
    if (context)
        ibv_close_device(context);
    if (devices)
        ibv_free_device_list(devices);
    return status;
}
