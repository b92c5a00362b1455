/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Queue pairs: states and queues. Reliable connections only. */
#include "sim_internal.h"

enum { MAX_QUEUE = 1 << 14, MAX_INLINE = 4096 };

static struct sim_qp *sim_qp(struct ibv_qp *qp) {
    return sim_container_of(qp, struct sim_qp, ibv);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static int check_init_attr(const struct ibv_qp_init_attr *init) {
    if (init->qp_type != IBV_QPT_RC || init->srq != NULL)
        return EOPNOTSUPP;
    if (init->send_cq == NULL || init->recv_cq == NULL || init->cap.max_send_wr > MAX_QUEUE ||
        init->cap.max_recv_wr > MAX_QUEUE || init->cap.max_send_sge > SIM_MAX_SGE ||
        init->cap.max_recv_sge > SIM_MAX_SGE || init->cap.max_inline_data > MAX_INLINE)
        return EINVAL;
    return 0;
}

SIM_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init) {
    struct sim_qp *qp;
    int err = check_init_attr(init);

    if (err != 0) {
        errno = err;
        return NULL;
    }
    qp = calloc(1, sizeof(*qp));
    if (qp == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    qp->init_attr = *init;
    qp->ibv.context = pd->context;
    qp->ibv.qp_context = init->qp_context;
    qp->ibv.pd = pd;
    qp->ibv.send_cq = init->send_cq;
    qp->ibv.recv_cq = init->recv_cq;
    qp->ibv.qp_type = init->qp_type;
    qp->ibv.state = IBV_QPS_RESET;
    qp->sends_tail = &qp->sends;
    qp->recvs_tail = &qp->recvs;
    pthread_mutex_init(&qp->ibv.mutex, NULL);
    pthread_cond_init(&qp->ibv.cond, NULL);
    pthread_mutex_init(&qp->lock, NULL);
    pthread_cond_init(&qp->changed, NULL);
    err = sim_transport_start(qp);
    if (err != 0) {
        free(qp);
        errno = err;
        return NULL;
    }
    sim_cq_attach_qp(init->send_cq);
    sim_cq_attach_qp(init->recv_cq);
    atomic_fetch_add(&sim_pd(pd)->qps, 1);
    atomic_fetch_add(&sim_live_qps, 1);
    return &qp->ibv;
}

static void free_send(struct sim_send *send) {
    free(send->inline_data);
    free(send);
}

/* Empties both queues but for a send that is being performed. With complete, each request gets its
 * completion. The queue pair is locked. */
static void flush(struct sim_qp *qp, bool complete) {
    struct sim_send *send;
    struct sim_recv *recv;

    while ((send = qp->sends) != NULL) {
        qp->sends = send->next;
        qp->send_count--;
        if (complete)
            sim_send_complete(qp, send, IBV_WC_WR_FLUSH_ERR);
        free_send(send);
    }
    qp->sends_tail = &qp->sends;
    while ((recv = qp->recvs) != NULL) {
        struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};

        qp->recvs = recv->next;
        qp->recv_count--;
        if (complete)
            sim_recv_complete(qp, recv, &wc);
        free(recv);
    }
    qp->recvs_tail = &qp->recvs;
}

SIM_EXPORT int ibv_destroy_qp(struct ibv_qp *ibv) {
    struct sim_qp *qp = sim_qp(ibv);

    sim_transport_stop(qp);
    flush(qp, false);
    sim_cq_detach_qp(ibv->send_cq);
    sim_cq_detach_qp(ibv->recv_cq);
    atomic_fetch_sub(&sim_pd(ibv->pd)->qps, 1);
    pthread_mutex_destroy(&ibv->mutex);
    pthread_cond_destroy(&ibv->cond);
    pthread_mutex_destroy(&qp->lock);
    pthread_cond_destroy(&qp->changed);
    free(qp);
    atomic_fetch_sub(&sim_live_qps, 1);
    return 0;
}

/* ---- States ---------------------------------------------------------------------------------- */

/* The transitions of a reliable connection, with the attributes that each needs. */
static const struct {
    enum ibv_qp_state from, to;
    int needs;
} transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0},
};

static bool may_move(enum ibv_qp_state from, enum ibv_qp_state to, int mask) {
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
        return true;
    for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
        if (transitions[i].from == from && transitions[i].to == to)
            return (mask & transitions[i].needs) == transitions[i].needs;
    }
    return false;
}

static void take_attributes(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask) {
#define TAKE(bit, member)                                                                          \
    do {                                                                                           \
        if (mask & (bit))                                                                          \
            to->member = from->member;                                                             \
    } while (0)
    TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    TAKE(IBV_QP_PKEY_INDEX, pkey_index);
    TAKE(IBV_QP_PORT, port_num);
    TAKE(IBV_QP_QKEY, qkey);
    TAKE(IBV_QP_AV, ah_attr);
    TAKE(IBV_QP_PATH_MTU, path_mtu);
    TAKE(IBV_QP_TIMEOUT, timeout);
    TAKE(IBV_QP_RETRY_CNT, retry_cnt);
    TAKE(IBV_QP_RNR_RETRY, rnr_retry);
    TAKE(IBV_QP_RQ_PSN, rq_psn);
    TAKE(IBV_QP_SQ_PSN, sq_psn);
    TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
    TAKE(IBV_QP_DEST_QPN, dest_qp_num);
#undef TAKE
}

SIM_EXPORT int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask) {
    struct sim_qp *qp = sim_qp(ibv);
    enum ibv_qp_state to;
    int err = 0;

    pthread_mutex_lock(&qp->lock);
    to = mask & IBV_QP_STATE ? attr->qp_state : ibv->state;
    if (!may_move(ibv->state, to, mask) || ((mask & IBV_QP_PORT) && attr->port_num != 1)) {
        err = EINVAL;
    } else {
        take_attributes(&qp->attr, attr, mask);
        ibv->state = to;
        if (to == IBV_QPS_ERR)
            flush(qp, true);
        if (to == IBV_QPS_RESET) {
            flush(qp, false);
            sim_transport_disconnect(qp);
        }
        pthread_cond_broadcast(&qp->changed);
    }
    pthread_mutex_unlock(&qp->lock);
    return err;
}

SIM_EXPORT int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
                            struct ibv_qp_init_attr *init) {
    struct sim_qp *qp = sim_qp(ibv);

    (void)mask; /* everything is known, so everything is told */
    pthread_mutex_lock(&qp->lock);
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = ibv->state;
    attr->cap = qp->init_attr.cap;
    if (init != NULL)
        *init = qp->init_attr;
    pthread_mutex_unlock(&qp->lock);
    return 0;
}

void sim_qp_fail_locked(struct sim_qp *qp) {
    if (qp->ibv.state == IBV_QPS_RESET)
        return;
    qp->ibv.state = IBV_QPS_ERR;
    flush(qp, true);
    pthread_cond_broadcast(&qp->changed);
}

/* ---- Posting --------------------------------------------------------------------------------- */

static int copy_inline(struct sim_send *send, const struct ibv_send_wr *wr) {
    uint8_t *place = malloc(send->length + 1);

    send->inline_data = place;
    if (place == NULL)
        return ENOMEM;
    for (int i = 0; i < wr->num_sge; i++) {
        memcpy(place, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        place += wr->sg_list[i].length;
    }
    return 0;
}

static int copy_send(struct sim_qp *qp, const struct ibv_send_wr *wr, struct sim_send **result) {
    const struct ibv_qp_cap *cap = &qp->init_attr.cap;
    struct sim_send *send;
    int err = 0;

    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > cap->max_send_sge)
        return EINVAL;
    if (wr->opcode > IBV_WR_ATOMIC_FETCH_AND_ADD)
        return EOPNOTSUPP;
    if (qp->send_count >= cap->max_send_wr)
        return ENOMEM;
    send = calloc(1, sizeof(*send));
    if (send == NULL)
        return ENOMEM;
    send->wr = *wr;
    send->wr.sg_list = send->sges;
    for (int i = 0; i < wr->num_sge; i++) {
        send->sges[i] = wr->sg_list[i];
        send->length += wr->sg_list[i].length;
    }
    if (wr->send_flags & IBV_SEND_INLINE)
        err = send->length > cap->max_inline_data ? EINVAL : copy_inline(send, wr);
    if (err != 0) {
        free_send(send);
        return err;
    }
    *result = send;
    return 0;
}

int sim_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    struct sim_qp *qp = sim_qp(ibv);
    int err = 0;

    pthread_mutex_lock(&qp->lock);
    for (; wr != NULL; wr = wr->next) {
        struct sim_send *send = NULL;

        err = EINVAL;
        if (ibv->state == IBV_QPS_RTS || ibv->state == IBV_QPS_ERR)
            err = copy_send(qp, wr, &send);
        if (err != 0)
            break;
        if (ibv->state == IBV_QPS_ERR) {
            sim_send_complete(qp, send, IBV_WC_WR_FLUSH_ERR);
            free_send(send);
            continue;
        }
        *qp->sends_tail = send;
        qp->sends_tail = &send->next;
        qp->send_count++;
    }
    pthread_cond_broadcast(&qp->changed);
    pthread_mutex_unlock(&qp->lock);
    if (err != 0)
        *bad = wr;
    return err;
}

int sim_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct sim_qp *qp = sim_qp(ibv);
    int err = 0;

    pthread_mutex_lock(&qp->lock);
    for (; wr != NULL && err == 0; wr = wr->next) {
        struct sim_recv *recv = NULL;

        if (ibv->state == IBV_QPS_RESET || wr->num_sge < 0 ||
            (uint32_t)wr->num_sge > qp->init_attr.cap.max_recv_sge)
            err = EINVAL;
        else if (qp->recv_count >= qp->init_attr.cap.max_recv_wr ||
                 (recv = calloc(1, sizeof(*recv))) == NULL)
            err = ENOMEM;
        if (err != 0)
            break;
        recv->wr_id = wr->wr_id;
        recv->num_sge = wr->num_sge;
        for (int i = 0; i < wr->num_sge; i++)
            recv->sges[i] = wr->sg_list[i];
        if (ibv->state == IBV_QPS_ERR) {
            struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};

            sim_recv_complete(qp, recv, &wc);
            free(recv);
            continue;
        }
        *qp->recvs_tail = recv;
        qp->recvs_tail = &recv->next;
        qp->recv_count++;
    }
    pthread_cond_broadcast(&qp->changed);
    pthread_mutex_unlock(&qp->lock);
    if (err != 0)
        *bad = wr;
    return err;
}

/* ---- Completing ------------------------------------------------------------------------------ */

void sim_send_complete(struct sim_qp *qp, const struct sim_send *send, enum ibv_wc_status status) {
    static const enum ibv_wc_opcode opcodes[] = {
        [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
        [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
        [IBV_WR_SEND] = IBV_WC_SEND,
        [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
        [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
        [IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
        [IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
    };
    struct ibv_wc wc = {
        .wr_id = send->wr.wr_id,
        .status = status,
        .opcode = opcodes[send->wr.opcode],
        .byte_len = (uint32_t)send->length,
        .qp_num = qp->ibv.qp_num,
    };

    /* A failure is always reported. */
    if (status != IBV_WC_SUCCESS || qp->init_attr.sq_sig_all ||
        (send->wr.send_flags & IBV_SEND_SIGNALED))
        sim_cq_push(qp->ibv.send_cq, &wc, false);
}

void sim_recv_complete(struct sim_qp *qp, const struct sim_recv *recv, struct ibv_wc *wc) {
    wc->wr_id = recv->wr_id;
    wc->qp_num = qp->ibv.qp_num;
    wc->src_qp = qp->attr.dest_qp_num;
    sim_cq_push(qp->ibv.recv_cq, wc, false);
}
