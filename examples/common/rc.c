/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include "rc.h"
#include "helper.h"
#include <arpa/inet.h>
#include <endian.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* What each side tells the other to connect the QPs; in network byte order on the wire. */
struct endpoint {
    uint32_t qp_num, psn, lid, mtu;
    union ibv_gid gid;
};

/* ---- TCP ---- */

static int open_socket(const char *host, const char *service,
                       int (*attach)(int, const struct sockaddr *, socklen_t)) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list;
    int error = getaddrinfo(host, service, &hints, &list);
    if (error)
        errx(1, "%s port %s: %s", host ? host : "any address", service, gai_strerror(error));

    for (struct addrinfo *entry = list; entry; entry = entry->ai_next) {
        int fd = socket(entry->ai_family, entry->ai_socktype, entry->ai_protocol);
        if (fd >= 0 && attach(fd, entry->ai_addr, entry->ai_addrlen) == 0) {
            freeaddrinfo(list);
            return fd;
        }
        if (fd >= 0) {
            int reason = errno;
            close(fd);
            errno = reason;
        }
    }
    err(1, "%s port %s", host ? host : "any address", service);
}

static int bind_and_listen(int fd, const struct sockaddr *address, socklen_t length) {
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    return bind(fd, address, length) || listen(fd, 1);
}

static void swap(struct rc *rc, const void *mine, void *peers, size_t size) {
    if (send(rc->socket, mine, size, MSG_NOSIGNAL) != (ssize_t)size)
        err(1, "%s: cannot tell the peer", rc->role);
    ssize_t got = recv(rc->socket, peers, size, MSG_WAITALL);
    if (got < 0)
        err(1, "%s: cannot hear the peer", rc->role);
    if ((size_t)got != size)
        errx(1, "%s: the peer has closed the connection", rc->role);
}

/* ---- Both sides from one command ---- */

static void wait_for_both(pid_t server, pid_t client) {
    bool failed = false;
    for (int left = 2; left > 0; left--) {
        int status;
        pid_t ended = wait(&status);
        if (ended < 0)
            err(1, "wait");
        if (status == 0 || failed)
            continue;
        failed = true;
        const char *role = ended == server ? "server" : "client";
        if (WIFSIGNALED(status))
            warnx("the %s was ended by signal %d", role, WTERMSIG(status));
        else
            warnx("the %s failed", role);
        if (left == 2) /* the other one would wait for it for ever */
            kill(ended == server ? client : server, SIGTERM);
    }
    exit(failed);
}

static pid_t start(void) {
    pid_t pid = fork();
    if (pid < 0)
        err(1, "fork");
    return pid;
}

/*
 * Returns in two new processes, server and client. No device is open yet: what
 * verbs and libamr make belongs to the process that made it.
 */
static void become_pair(struct rc *rc) {
    static char service[NI_MAXSERV];
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);

    setvbuf(stdout, NULL, _IOLBF, 0); /* whole lines, though two processes write them */
    setvbuf(stderr, NULL, _IOLBF, 0);
    rc->listener = open_socket("127.0.0.1", "0", bind_and_listen);
    if (getsockname(rc->listener, (struct sockaddr *)&address, &length) ||
        getnameinfo((struct sockaddr *)&address, length, NULL, 0, service, sizeof(service),
                    NI_NUMERICSERV))
        err(1, "the address of the listening socket");
    rc->service = service;

    pid_t server = start();
    if (server == 0)
        return;
    pid_t client = start();
    close(rc->listener);
    if (client != 0)
        wait_for_both(server, client);
    rc->listener = -1;
    rc->host = "127.0.0.1";
}

/* ---- The device and its QP ---- */

static struct ibv_port_attr find_port(struct rc *rc) {
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    if (ibv_query_device(rc->pd->context, &device))
        err(1, "ibv_query_device");
    for (rc->port = 1; rc->port <= device.phys_port_cnt; rc->port++) {
        if (ibv_query_port(rc->pd->context, rc->port, &port) == 0 && port.state == IBV_PORT_ACTIVE)
            return port;
    }
    errx(1, "%s has no active port", ibv_get_device_name(rc->pd->context->device));
}

static bool is_roce_v2(const struct rc *rc, int index) {
    char path[256], type[32] = "";
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/gid_attrs/types/%d",
             ibv_get_device_name(rc->pd->context->device), rc->port, index);
    FILE *file = fopen(path, "r");
    if (file) {
        if (!fgets(type, sizeof(type), file)) /* an empty entry cannot be read */
            type[0] = '\0';
        fclose(file);
    }
    return strncmp(type, "RoCE v2", 7) == 0;
}

/* How well a GID serves to reach another host; 0: not at all. */
static int rank_gid(const struct rc *rc, const union ibv_gid *gid, int index) {
    static const uint8_t none[16], ipv4[12] = {[10] = 0xff, [11] = 0xff};
    if (memcmp(gid->raw, none, sizeof(none)) == 0)
        return 0;
    bool is_ipv4 = memcmp(gid->raw, ipv4, sizeof(ipv4)) == 0;
    bool is_link_local = gid->raw[0] == 0xfe && gid->raw[1] == 0x80;
    return 1 + 4 * is_roce_v2(rc, index) + (is_ipv4 ? 2 : !is_link_local);
}

static union ibv_gid find_gid(struct rc *rc, int table_length) {
    union ibv_gid best = {.raw = {0}};
    int best_rank = 0;
    for (int i = 0; i < table_length && i <= UINT8_MAX; i++) {
        union ibv_gid gid;
        if (ibv_query_gid(rc->pd->context, rc->port, i, &gid))
            continue;
        int rank = rank_gid(rc, &gid, i);
        if (rank > best_rank) {
            best_rank = rank;
            best = gid;
            rc->gid_index = (uint8_t)i;
        }
    }
    return best;
}

static void create_qp(struct rc *rc) {
    rc->cq = ibv_create_cq(rc->pd->context, 1, NULL, NULL, 0);
    if (!rc->cq)
        err(1, "ibv_create_cq");
    struct ibv_qp_init_attr init = {
        .send_cq = rc->cq,
        .recv_cq = rc->cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    rc->qp = ibv_create_qp(rc->pd, &init);
    if (!rc->qp)
        err(1, "ibv_create_qp");
}

static void destroy_qp(struct rc *rc) {
    int error = ibv_destroy_qp(rc->qp);
    if (!error)
        error = ibv_destroy_cq(rc->cq);
    if (error)
        errx(1, "%s: cannot destroy the QP: %s", rc->role, strerror(error));
}

static struct endpoint describe_endpoint(struct rc *rc) {
    struct ibv_port_attr port = find_port(rc);
    return (struct endpoint){
        .qp_num = rc->qp->qp_num,
        .psn = (uint32_t)getpid() & 0xffffff,
        .lid = port.lid,
        .mtu = port.active_mtu,
        .gid = find_gid(rc, port.gid_tbl_len),
    };
}

static void modify_qp(struct rc *rc, struct ibv_qp_attr *attr, int mask) {
    int error = ibv_modify_qp(rc->qp, attr, mask | IBV_QP_STATE);
    if (error)
        errx(1, "%s: ibv_modify_qp to state %d: %s", rc->role, attr->qp_state, strerror(error));
}

static void connect_qp(struct rc *rc, const struct endpoint *mine, const struct endpoint *peer) {
    struct ibv_qp_attr init = {
        .qp_state = IBV_QPS_INIT,
        .port_num = rc->port,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
    };
    modify_qp(rc, &init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

    struct ibv_qp_attr ready_to_receive = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mine->mtu < peer->mtu ? mine->mtu : peer->mtu,
        .dest_qp_num = peer->qp_num,
        .rq_psn = peer->psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.dlid = (uint16_t)peer->lid, .port_num = rc->port},
    };
    if (peer->lid == 0) { /* not InfiniBand: the GID is the address */
        ready_to_receive.ah_attr.is_global = 1;
        ready_to_receive.ah_attr.grh.dgid = peer->gid;
        ready_to_receive.ah_attr.grh.sgid_index = rc->gid_index;
        ready_to_receive.ah_attr.grh.hop_limit = 64;
    }
    modify_qp(rc, &ready_to_receive,
              IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);

    struct ibv_qp_attr ready_to_send = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = mine->psn,
        .max_rd_atomic = 1,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
    };
    modify_qp(rc, &ready_to_send,
              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                  IBV_QP_RNR_RETRY);
}

static struct endpoint swap_endpoints(struct rc *rc, const struct endpoint *mine) {
    struct endpoint wire = {
        .qp_num = htonl(mine->qp_num),
        .psn = htonl(mine->psn),
        .lid = htonl(mine->lid),
        .mtu = htonl(mine->mtu),
        .gid = mine->gid,
    };
    struct endpoint peer;
    swap(rc, &wire, &peer, sizeof(wire));
    peer.qp_num = ntohl(peer.qp_num);
    peer.psn = ntohl(peer.psn);
    peer.lid = ntohl(peer.lid);
    peer.mtu = ntohl(peer.mtu);
    return peer;
}

/* ---- What the programs call ---- */

static void parse(struct rc *rc, int argc, char **argv) {
    static const struct option options[] = {{"device", required_argument, NULL, 'd'},
                                            {"port", required_argument, NULL, 'p'},
                                            {"pair", no_argument, NULL, '2'},
                                            {NULL, 0, NULL, 0}};
    bool pair = false;
    int option;
    while ((option = getopt_long(argc, argv, "d:p:", options, NULL)) != -1) {
        if (option == 'd')
            rc->device = optarg;
        else if (option == 'p')
            rc->service = optarg;
        else if (option == '2')
            pair = true;
        else
            errx(1, "usage: [--device NAME] [--port PORT] [HOST | --pair]");
    }
    rc->host = argv[optind];
    if (pair)
        become_pair(rc);
}

void rc_open(struct rc *rc, int argc, char **argv) {
    *rc = (struct rc){.service = "18515", .listener = -1, .socket = -1};
    parse(rc, argc, argv);
    rc->is_client = rc->host != NULL;
    rc->role = rc->is_client ? "client" : "server";
    if (!rc->is_client && rc->listener < 0)
        rc->listener = open_socket(NULL, rc->service, bind_and_listen);
    rc->pd = open_pd(rc->device);
    create_qp(rc);
}

void rc_connect(struct rc *rc) {
    if (rc->is_client)
        rc->socket = open_socket(rc->host, rc->service, connect);
    else if ((rc->socket = accept(rc->listener, NULL, NULL)) < 0)
        err(1, "accept");

    struct endpoint mine = describe_endpoint(rc);
    struct endpoint peer = swap_endpoints(rc, &mine);
    connect_qp(rc, &mine, &peer);
    rc_barrier(rc); /* the peer must be ready to receive before anything is sent */
}

void rc_open_loop(struct rc ends[2], struct ibv_pd *pd) {
    struct endpoint endpoints[2];
    for (int i = 0; i < 2; i++) {
        ends[i] = (struct rc){.pd = pd, .role = "loop", .listener = -1, .socket = -1};
        create_qp(&ends[i]);
        endpoints[i] = describe_endpoint(&ends[i]);
    }
    for (int i = 0; i < 2; i++)
        connect_qp(&ends[i], &endpoints[i], &endpoints[1 - i]);
}

void rc_close_loop(struct rc ends[2]) {
    for (int i = 0; i < 2; i++)
        destroy_qp(&ends[i]);
}

struct rc_key rc_swap_keys(struct rc *rc, const struct ibv_mr *mr) {
    uint64_t mine[2] = {htobe64((uintptr_t)mr->addr), htobe64(mr->rkey)}, peers[2];
    swap(rc, mine, peers, sizeof(mine));
    return (struct rc_key){.addr = be64toh(peers[0]), .rkey = (uint32_t)be64toh(peers[1])};
}

static struct ibv_sge whole(const struct ibv_mr *mr) {
    return (struct ibv_sge){
        .addr = (uintptr_t)mr->addr, .length = (uint32_t)mr->length, .lkey = mr->lkey};
}

static void rdma(struct rc *rc, enum ibv_wr_opcode opcode, struct ibv_sge sge, struct rc_key peer) {
    struct ibv_send_wr wr = {
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = peer.addr, .rkey = peer.rkey},
    };
    struct ibv_send_wr *refused;
    int error = ibv_post_send(rc->qp, &wr, &refused);
    if (error)
        errx(1, "ibv_post_send: %s", strerror(error));

    struct ibv_wc wc;
    int count;
    do
        count = ibv_poll_cq(rc->cq, 1, &wc);
    while (count == 0);
    if (count < 0)
        errx(1, "ibv_poll_cq failed");
    if (wc.status != IBV_WC_SUCCESS)
        errx(1, "RDMA %s: %s", opcode == IBV_WR_RDMA_READ ? "READ" : "WRITE",
             ibv_wc_status_str(wc.status));
}

void rc_write(struct rc *rc, const struct ibv_mr *mr, struct rc_key peer) {
    rdma(rc, IBV_WR_RDMA_WRITE, whole(mr), peer);
}

void rc_read(struct rc *rc, const struct ibv_mr *mr, struct rc_key peer) {
    rdma(rc, IBV_WR_RDMA_READ, whole(mr), peer);
}

void rc_write_sge(struct rc *rc, struct ibv_sge from, struct rc_key to) {
    rdma(rc, IBV_WR_RDMA_WRITE, from, to);
}

void rc_barrier(struct rc *rc) {
    char mine = 0, peers;
    swap(rc, &mine, &peers, 1);
}

void rc_close(struct rc *rc) {
    destroy_qp(rc);
    close_pd(rc->pd);
    close(rc->socket);
    if (rc->listener >= 0)
        close(rc->listener);
}
