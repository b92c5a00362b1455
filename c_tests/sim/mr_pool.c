/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Where memory regions come from, and how a key finds its region.
 *
 * Every thread has a cache, so that registering and deregistering take no lock. Freed regions wait
 * in a quarantine before they are used again: a second deregistration is then recognised.
 */
#include "sim_internal.h"

#include <sched.h>

enum {
    SLAB_REGIONS = 1024,
    SLABS = (1 << 24) / SLAB_REGIONS, /* keys have 24 bits for the index */
    BATCH = 64,
    QUARANTINE = 64,
    QUARANTINE_PINNED = 1024,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_mr *_Atomic slabs[SLABS];
static uint32_t made = 1; /* regions that were ever used; key 0 is nobody's */
static struct sim_mr_list shared;

/* Regions that one thread freed and another may use, in an array: walking a list of regions that
 * are in another CPU's cache, with the lock held, would be the bottleneck of the instant mode. */
struct magazine {
    struct magazine *next;
    struct sim_mr *regions[BATCH];
};
static struct magazine *first_full, **last_full = &first_full;
static uint32_t full_count;

static void append(struct sim_mr_list *list, struct sim_mr *mr) {
    mr->next = NULL;
    if (list->tail != NULL)
        list->tail->next = mr;
    else
        list->head = mr;
    list->tail = mr;
    list->count++;
}

static struct sim_mr *pop(struct sim_mr_list *list) {
    struct sim_mr *mr = list->head;

    list->head = mr->next;
    if (list->head == NULL)
        list->tail = NULL;
    list->count--;
    return mr;
}

static struct sim_mr *make_locked(void) {
    uint32_t slab = made / SLAB_REGIONS;
    struct sim_mr *regions;
    struct sim_mr *mr;

    if (slab >= SLABS)
        return NULL;
    regions = atomic_load_explicit(&slabs[slab], memory_order_relaxed);
    if (regions == NULL) {
        regions = aligned_alloc(_Alignof(struct sim_mr), SLAB_REGIONS * sizeof(*regions));
        if (regions == NULL)
            return NULL;
        memset(regions, 0, SLAB_REGIONS * sizeof(*regions));
        for (uint32_t i = 0; i < SLAB_REGIONS; i++)
            atomic_init(&regions[i].state, SIM_MR_FREE);
        atomic_store_explicit(&slabs[slab], regions, memory_order_release);
    }
    mr = &regions[made % SLAB_REGIONS];
    mr->index = made++;
    return mr;
}

static struct magazine *take_magazine_locked(void) {
    struct magazine *magazine = first_full;

    if (full_count * BATCH <= QUARANTINE_PINNED)
        return NULL;
    first_full = magazine->next;
    if (first_full == NULL)
        last_full = &first_full;
    full_count--;
    return magazine;
}

static void refill_locked(struct sim_thread *self) {
    for (int i = 0; i < BATCH; i++) {
        struct sim_mr *mr = shared.count > QUARANTINE_PINNED ? pop(&shared) : make_locked();

        if (mr == NULL)
            break;
        append(&self->spare, mr);
    }
    /* All keys were used once: what is left of the quarantine is better than nothing. */
    if (self->spare.count == 0 && shared.count > 0)
        append(&self->spare, pop(&shared));
}

static void refill(struct sim_thread *self) {
    struct magazine *magazine;

    pthread_mutex_lock(&lock);
    magazine = take_magazine_locked();
    if (magazine == NULL)
        refill_locked(self);
    pthread_mutex_unlock(&lock);
    if (magazine == NULL)
        return;
    for (int i = 0; i < BATCH; i++) {
        __builtin_prefetch(magazine->regions[i], 1);
        __builtin_prefetch((char *)magazine->regions[i] + 64, 1);
    }
    for (int i = 0; i < BATCH; i++)
        append(&self->spare, magazine->regions[i]);
    free(magazine);
}

static size_t quarantine(void) {
    return sim_get(&sim_settings.pins) ? QUARANTINE_PINNED : QUARANTINE;
}

struct sim_mr *sim_mr_take(struct sim_thread *self) {
    struct sim_mr *mr;

    if (self->freed.count > quarantine()) {
        mr = pop(&self->freed);
    } else {
        if (self->spare.count == 0)
            refill(self);
        if (self->spare.count == 0)
            return NULL;
        mr = pop(&self->spare);
    }
    mr->use++;
    return mr;
}

/* This thread frees what others register: hands the oldest ones back. */
static void give_magazine(struct sim_thread *self) {
    struct magazine *magazine = malloc(sizeof(*magazine));

    if (magazine == NULL)
        return; /* they stay with this thread */
    magazine->next = NULL;
    for (int i = 0; i < BATCH; i++)
        magazine->regions[i] = pop(&self->freed);
    pthread_mutex_lock(&lock);
    *last_full = magazine;
    last_full = &magazine->next;
    full_count++;
    pthread_mutex_unlock(&lock);
}

void sim_mr_give(struct sim_thread *self, struct sim_mr *mr) {
    append(&self->freed, mr);
    if (self->freed.count <= quarantine() + BATCH)
        return;
    give_magazine(self);
}

void sim_mr_pool_thread_end(struct sim_thread *self) {
    pthread_mutex_lock(&lock);
    while (self->spare.count > 0)
        append(&shared, pop(&self->spare));
    while (self->freed.count > 0)
        append(&shared, pop(&self->freed));
    pthread_mutex_unlock(&lock);
}

void sim_mr_publish(struct sim_mr *mr) {
    atomic_store_explicit(&mr->state, SIM_MR_LIVE, memory_order_release);
}

void sim_mr_claim(struct sim_mr *mr, const char *caller) {
    uint32_t state = atomic_load_explicit(&mr->state, memory_order_relaxed);

    do {
        if ((state & SIM_MR_KIND) == SIM_MR_FREE || (state & SIM_MR_KIND) == SIM_MR_DYING)
            sim_abort_line("%s: memory region %p was deregistered before", caller, (void *)mr);
        if ((state & SIM_MR_KIND) != SIM_MR_LIVE)
            sim_abort_line("%s: %p is not a memory region", caller, (void *)mr);
        if (state & SIM_MR_CLAIMED)
            sim_abort_line("%s: another call is deregistering memory region %p", caller,
                           (void *)mr);
    } while (!atomic_compare_exchange_weak_explicit(&mr->state, &state, state | SIM_MR_CLAIMED,
                                                    memory_order_acquire, memory_order_relaxed));
}

void sim_mr_unclaim(struct sim_mr *mr) {
    atomic_fetch_and_explicit(&mr->state, ~(uint32_t)SIM_MR_CLAIMED, memory_order_release);
}

void sim_mr_retire(struct sim_mr *mr) {
    atomic_fetch_xor_explicit(&mr->state, SIM_MR_LIVE ^ SIM_MR_DYING, memory_order_relaxed);
    while (atomic_load_explicit(&mr->state, memory_order_acquire) & SIM_MR_USERS)
        sched_yield();
    atomic_store_explicit(&mr->state, SIM_MR_FREE, memory_order_release);
}

void sim_mr_claim_and_retire(struct sim_mr *mr, const char *caller) {
    uint32_t state = SIM_MR_LIVE;

    if (SIM_LIKELY(atomic_compare_exchange_strong_explicit(
            &mr->state, &state, SIM_MR_FREE, memory_order_acq_rel, memory_order_relaxed)))
        return;
    sim_mr_claim(mr, caller);
    sim_mr_retire(mr);
}

static bool hold(struct sim_mr *mr) {
    uint32_t state = atomic_load_explicit(&mr->state, memory_order_relaxed);

    do {
        if ((state & SIM_MR_KIND) != SIM_MR_LIVE)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&mr->state, &state, state + 1,
                                                    memory_order_acquire, memory_order_relaxed));
    return true;
}

struct sim_mr *sim_mr_acquire(uint32_t key) {
    uint32_t index = key >> 8;
    struct sim_mr *mr = atomic_load_explicit(&slabs[index / SLAB_REGIONS], memory_order_acquire);

    if (mr == NULL)
        return NULL;
    mr += index % SLAB_REGIONS;
    if (!hold(mr))
        return NULL;
    if (mr->ibv.lkey != key) {
        sim_mr_release(mr);
        return NULL;
    }
    return mr;
}

void sim_mr_release(struct sim_mr *mr) {
    atomic_fetch_sub_explicit(&mr->state, 1, memory_order_release);
}

bool sim_mr_any_in(const struct ibv_pd *pd) {
    uint32_t count;

    pthread_mutex_lock(&lock);
    count = made;
    pthread_mutex_unlock(&lock);
    for (uint32_t index = 1; index < count; index++) {
        struct sim_mr *mr =
            atomic_load_explicit(&slabs[index / SLAB_REGIONS], memory_order_acquire) +
            index % SLAB_REGIONS;
        bool found;

        if (!hold(mr))
            continue;
        found = mr->ibv.pd == pd;
        sim_mr_release(mr);
        if (found)
            return true;
    }
    return false;
}

void sim_mr_pool_lock(void) {
    pthread_mutex_lock(&lock);
}

void sim_mr_pool_unlock(void) {
    pthread_mutex_unlock(&lock);
}
