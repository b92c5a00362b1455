/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A peer process writes nonstop into a region. Once the deregistration has completed, it gets an
 * access error, and what is then put into the buffer stays as it is: the memory is the owner's.
 * F34. The peer is a process of its own, connected as in examples/common.
 */
#include "device.h"

#include "rc.h"

enum { SIZE = 64 * 1024 };

/* Writes until the peer's memory is gone. */
static void write_nonstop(struct rc *rc, struct ibv_mr *mr, struct rc_key peer) {
    uint64_t written = 0;
    struct ibv_wc wc;

    do {
        struct ibv_sge sge = {(uintptr_t)mr->addr, SIZE, mr->lkey};
        struct ibv_send_wr wr, *refused;
        int count;

        memset(&wr, 0, sizeof(wr));
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma.remote_addr = peer.addr;
        wr.wr.rdma.rkey = peer.rkey;
        CHECK_EQ(ibv_post_send(rc->qp, &wr, &refused), 0);
        while ((count = ibv_poll_cq(rc->cq, 1, &wc)) == 0)
            ;
        CHECK_EQ(count, 1);
        written += wc.status == IBV_WC_SUCCESS;
    } while (wc.status == IBV_WC_SUCCESS);
    CHECK_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
    CHECK(written > 0);
}

static void deregister_meanwhile(struct rc *rc, struct amr_cq *cq, struct ibv_mr *mr,
                                 volatile char *buffer) {
    while (buffer[SIZE - 1] != 'w')
        ;
    post(cq, dereg_wr(1, mr));
    CHECK_EQ(read_wc(cq).status, 0);
    memset((char *)buffer, 'c', SIZE);
    rc_barrier(rc); /* the peer has got its error */
    for (int i = 0; i < SIZE; i++)
        CHECK_EQ(buffer[i], 'c');
}

int main(int argc, char **argv) {
    char pair[] = "--pair";
    char *arguments[] = {argv[0], pair, NULL};
    struct amr_cq *cq;
    struct ibv_mr *mr;
    struct rc_key peer;
    char *buffer;
    struct rc rc;

    (void)argc;
    alarm(150);
    rc_open(&rc, 2, arguments);
    buffer = map_pages(SIZE);
    cq = new_cq(NULL, 2);
    memset(buffer, rc.is_client ? 'w' : 0, SIZE);
    mr = reg(cq, rc.pd, buffer, SIZE);
    rc_connect(&rc);
    peer = rc_swap_keys(&rc, mr);
    if (rc.is_client) {
        write_nonstop(&rc, mr, peer);
        rc_barrier(&rc);
        CHECK_EQ(ibv_dereg_mr(mr), 0);
    } else {
        deregister_meanwhile(&rc, cq, mr, buffer);
    }
    rc_barrier(&rc);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    rc_close(&rc);
    return 0;
}
