/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A reliable connection (RC) between two processes: everything that rc_write
 * and rc_write_sync need beside memory regions; or between two QPs of one
 * process, for the examples in C++. Errors end the program with a message.
 */
#ifndef RC_H
#define RC_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rc {
    struct ibv_pd *pd;
    bool is_client;
    const char *role; /* "client" or "server" */
    /* For rc.c only. */
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    const char *device, *host, *service;
    int listener, socket;
    uint8_t port, gid_index;
};

/* What the peer needs to know of a region. */
struct rc_key {
    uint64_t addr;
    uint32_t rkey;
};

/*
 * Reads the command line, [--device NAME] [--port PORT] [HOST | --pair], and
 * opens the device. With a HOST this process is the client, otherwise the
 * server. --pair makes two processes of this one, the server and its client.
 */
void rc_open(struct rc *rc, int argc, char **argv);

/* Connects to the peer, over TCP and then by RC. */
void rc_connect(struct rc *rc);

/* Both ends of a connection inside this process, on a PD that is the caller's. */
void rc_open_loop(struct rc ends[2], struct ibv_pd *pd);
void rc_close_loop(struct rc ends[2]);

/* Tells the peer about a region, and learns about the corresponding one. */
struct rc_key rc_swap_keys(struct rc *rc, const struct ibv_mr *mr);

/* RDMA between a whole region and the peer's; returns when it is done. */
void rc_write(struct rc *rc, const struct ibv_mr *mr, struct rc_key peer);
void rc_read(struct rc *rc, const struct ibv_mr *mr, struct rc_key peer);

/* RDMA from a part of a region to where the key says; returns when it is done. */
void rc_write_sge(struct rc *rc, struct ibv_sge from, struct rc_key to);

/* Waits until the peer has come to the same point. */
void rc_barrier(struct rc *rc);

/* Disconnects and closes the device. All regions must be gone. */
void rc_close(struct rc *rc);

#ifdef __cplusplus
}
#endif

#endif /* RC_H */
