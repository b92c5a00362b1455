/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Completion queues and their event channels. */
#include "sim_internal.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { NOT_ARMED, ARMED, ARMED_SOLICITED };

struct sim_cq {
    struct ibv_cq ibv;
    atomic_uint qps;
    pthread_mutex_t lock; /* all that follows */
    struct ibv_wc *ring;
    uint32_t capacity;
    uint32_t head;
    uint32_t count;
    int armed;

    /* Under the channel's lock. */
    struct sim_cq *next;
    uint32_t events_pending;
    /* Under ibv.mutex, as the structure's public part wants it. */
    uint32_t events_taken;
};

/* The file descriptor is a semaphore: one token for each event in the list. */
struct sim_channel {
    struct ibv_comp_channel ibv;
    pthread_mutex_t lock;
    struct sim_cq *head, **tail;
};

static struct sim_cq *sim_cq(struct ibv_cq *cq) {
    return sim_container_of(cq, struct sim_cq, ibv);
}

static struct sim_channel *sim_channel(struct ibv_comp_channel *channel) {
    return sim_container_of(channel, struct sim_channel, ibv);
}

/* ---- Channels -------------------------------------------------------------------------------- */

SIM_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    struct sim_channel *channel = calloc(1, sizeof(*channel));

    if (channel == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    channel->ibv.context = context;
    channel->ibv.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    if (channel->ibv.fd < 0) {
        free(channel);
        return NULL;
    }
    pthread_mutex_init(&channel->lock, NULL);
    channel->tail = &channel->head;
    return &channel->ibv;
}

SIM_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv) {
    struct sim_channel *channel = sim_channel(ibv);
    bool busy;

    pthread_mutex_lock(&channel->lock);
    busy = ibv->refcnt != 0;
    pthread_mutex_unlock(&channel->lock);
    if (busy)
        return EBUSY;
    close(ibv->fd);
    pthread_mutex_destroy(&channel->lock);
    free(channel);
    return 0;
}

static void channel_push(struct sim_channel *channel, struct sim_cq *cq) {
    static const uint64_t one = 1;
    ssize_t written;

    pthread_mutex_lock(&channel->lock);
    if (cq->events_pending++ == 0) {
        cq->next = NULL;
        *channel->tail = cq;
        channel->tail = &cq->next;
    }
    written = write(channel->ibv.fd, &one, sizeof(one));
    pthread_mutex_unlock(&channel->lock);
    if (written != sizeof(one))
        sim_abort_line("cannot signal a completion channel");
}

static void channel_unlink(struct sim_channel *channel, struct sim_cq *cq) {
    struct sim_cq **link = &channel->head;

    while (*link != cq)
        link = &(*link)->next;
    *link = cq->next;
    if (channel->tail == &cq->next)
        channel->tail = link;
}

static struct sim_cq *channel_pop(struct sim_channel *channel) {
    struct sim_cq *cq;

    pthread_mutex_lock(&channel->lock);
    cq = channel->head;
    if (cq != NULL) {
        if (--cq->events_pending == 0)
            channel_unlink(channel, cq);
        pthread_mutex_lock(&cq->ibv.mutex);
        cq->events_taken++;
        pthread_mutex_unlock(&cq->ibv.mutex);
    }
    pthread_mutex_unlock(&channel->lock);
    return cq;
}

SIM_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                                void **cq_context) {
    struct sim_cq *found;
    uint64_t token;

    /* A token without event is what a destroyed queue left behind. */
    do {
        if (read(channel->fd, &token, sizeof(token)) != sizeof(token))
            return -1;
        found = channel_pop(sim_channel(channel));
    } while (found == NULL);
    *cq = &found->ibv;
    *cq_context = found->ibv.cq_context;
    return 0;
}

SIM_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count) {
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += count;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

/* ---- Queues ---------------------------------------------------------------------------------- */

/* Real devices round up as well, and some programs live on it. */
static uint32_t round_up(int entries) {
    uint32_t capacity = 1;

    while (capacity < (uint32_t)entries + 1)
        capacity <<= 1;
    return capacity;
}

SIM_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
                                        struct ibv_comp_channel *channel, int comp_vector) {
    static atomic_uint handle;
    struct sim_cq *cq;

    if (entries <= 0 || entries > 1 << 22 || comp_vector < 0 ||
        comp_vector >= context->num_comp_vectors) {
        errno = EINVAL;
        return NULL;
    }
    cq = calloc(1, sizeof(*cq));
    if (cq != NULL) {
        cq->capacity = round_up(entries);
        cq->ring = calloc(cq->capacity, sizeof(*cq->ring));
    }
    if (cq == NULL || cq->ring == NULL) {
        free(cq);
        errno = ENOMEM;
        return NULL;
    }
    cq->ibv.context = context;
    cq->ibv.channel = channel;
    cq->ibv.cq_context = cq_context;
    cq->ibv.handle = atomic_fetch_add(&handle, 1);
    cq->ibv.cqe = (int)cq->capacity - 1;
    pthread_mutex_init(&cq->ibv.mutex, NULL);
    pthread_cond_init(&cq->ibv.cond, NULL);
    pthread_mutex_init(&cq->lock, NULL);
    if (channel != NULL) {
        pthread_mutex_lock(&sim_channel(channel)->lock);
        channel->refcnt++;
        pthread_mutex_unlock(&sim_channel(channel)->lock);
    }
    atomic_fetch_add(&sim_live_cqs, 1);
    return &cq->ibv;
}

SIM_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int entries) {
    (void)cq, (void)entries;
    return EOPNOTSUPP;
}

SIM_EXPORT int ibv_destroy_cq(struct ibv_cq *ibv) {
    struct sim_cq *cq = sim_cq(ibv);

    if (atomic_load(&cq->qps) != 0)
        return EBUSY;
    if (ibv->channel != NULL) {
        struct sim_channel *channel = sim_channel(ibv->channel);

        pthread_mutex_lock(&channel->lock);
        if (cq->events_pending > 0)
            channel_unlink(channel, cq);
        ibv->channel->refcnt--;
        pthread_mutex_unlock(&channel->lock);
    }
    /* As documented: waits until every event that was taken is acknowledged. */
    pthread_mutex_lock(&ibv->mutex);
    while (ibv->comp_events_completed != cq->events_taken)
        pthread_cond_wait(&ibv->cond, &ibv->mutex);
    pthread_mutex_unlock(&ibv->mutex);
    pthread_mutex_destroy(&ibv->mutex);
    pthread_cond_destroy(&ibv->cond);
    pthread_mutex_destroy(&cq->lock);
    free(cq->ring);
    free(cq);
    atomic_fetch_sub(&sim_live_cqs, 1);
    return 0;
}

void sim_cq_attach_qp(struct ibv_cq *cq) {
    atomic_fetch_add(&sim_cq(cq)->qps, 1);
}

void sim_cq_detach_qp(struct ibv_cq *cq) {
    atomic_fetch_sub(&sim_cq(cq)->qps, 1);
}

void sim_cq_push(struct ibv_cq *ibv, const struct ibv_wc *wc, bool solicited) {
    struct sim_cq *cq = sim_cq(ibv);
    bool fires;

    pthread_mutex_lock(&cq->lock);
    if (cq->count == cq->capacity)
        sim_abort_line("completion queue %p of %u entries overran", (void *)ibv, cq->capacity);
    cq->ring[(cq->head + cq->count++) & (cq->capacity - 1)] = *wc;
    fires = cq->armed == ARMED ||
            (cq->armed == ARMED_SOLICITED && (solicited || wc->status != IBV_WC_SUCCESS));
    if (fires)
        cq->armed = NOT_ARMED;
    if (fires && ibv->channel != NULL)
        channel_push(sim_channel(ibv->channel), cq);
    pthread_mutex_unlock(&cq->lock);
}

int sim_poll_cq(struct ibv_cq *ibv, int count, struct ibv_wc *wc) {
    struct sim_cq *cq = sim_cq(ibv);
    int polled = 0;

    pthread_mutex_lock(&cq->lock);
    for (; polled < count && cq->count > 0; polled++, cq->count--)
        wc[polled] = cq->ring[cq->head++ & (cq->capacity - 1)];
    pthread_mutex_unlock(&cq->lock);
    return polled;
}

int sim_req_notify_cq(struct ibv_cq *ibv, int solicited_only) {
    struct sim_cq *cq = sim_cq(ibv);

    pthread_mutex_lock(&cq->lock);
    /* Asking for less does not take back what was asked for before. */
    if (!solicited_only)
        cq->armed = ARMED;
    else if (cq->armed == NOT_ARMED)
        cq->armed = ARMED_SOLICITED;
    pthread_mutex_unlock(&cq->lock);
    return 0;
}
