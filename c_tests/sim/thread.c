/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Per-thread state: counters and caches that no other thread writes to. */
#include "sim_internal.h"

__thread struct sim_thread *sim_thread_current __attribute__((tls_model("initial-exec")));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_thread *all;  /* never shrinks: counts of ended threads stay */
static struct sim_thread *idle; /* of ended threads, for new ones */
static uint64_t baseline[SIM_COUNTERS];

static pthread_key_t end_key;
static pthread_once_t end_key_once = PTHREAD_ONCE_INIT;

static void thread_end(void *thread) {
    struct sim_thread *self = thread;

    sim_mr_pool_thread_end(self);
    sim_thread_current = NULL;
    pthread_mutex_lock(&lock);
    self->next_idle = idle;
    idle = self;
    pthread_mutex_unlock(&lock);
}

static void make_end_key(void) {
    if (pthread_key_create(&end_key, thread_end) != 0)
        sim_abort_line("no thread-specific key left");
}

struct sim_thread *sim_thread_start(void) {
    struct sim_thread *self;

    pthread_once(&end_key_once, make_end_key);
    pthread_mutex_lock(&lock);
    self = idle;
    if (self != NULL) {
        idle = self->next_idle;
    } else {
        self = aligned_alloc(_Alignof(struct sim_thread), sizeof(*self));
        if (self == NULL)
            sim_abort_line("out of memory");
        memset(self, 0, sizeof(*self));
        self->next = all;
        all = self;
    }
    pthread_mutex_unlock(&lock);
    pthread_setspecific(end_key, self);
    sim_thread_current = self;
    return self;
}

static uint64_t sum_locked(enum sim_counter counter) {
    uint64_t sum = 0;

    for (struct sim_thread *thread = all; thread != NULL; thread = thread->next)
        sum += atomic_load_explicit(&thread->counters[counter], memory_order_relaxed);
    return sum;
}

uint64_t sim_count_sum(enum sim_counter counter) {
    uint64_t sum;

    pthread_mutex_lock(&lock);
    sum = sum_locked(counter) - baseline[counter];
    pthread_mutex_unlock(&lock);
    return sum;
}

uint64_t sim_live_mrs(void) {
    uint64_t ended, begun;

    pthread_mutex_lock(&lock);
    /* Ended ones first: a region that comes and goes meanwhile must not make the result negative.
     */
    ended = sum_locked(SIM_COUNT_DEREG) - sum_locked(SIM_COUNT_DEREG_FAILED);
    begun = sum_locked(SIM_COUNT_REG) - sum_locked(SIM_COUNT_REG_FAILED) -
            sum_locked(SIM_COUNT_REREG_DONE);
    pthread_mutex_unlock(&lock);
    return begun > ended ? begun - ended : 0;
}

void sim_count_restart(void) {
    pthread_mutex_lock(&lock);
    for (int counter = 0; counter < SIM_COUNT_RUNNING; counter++)
        baseline[counter] = sum_locked((enum sim_counter)counter);
    pthread_mutex_unlock(&lock);
}

void sim_threads_lock(void) {
    pthread_mutex_lock(&lock);
}

void sim_threads_unlock(void) {
    pthread_mutex_unlock(&lock);
}

void sim_threads_after_fork(void) {
    for (struct sim_thread *thread = all; thread != NULL; thread = thread->next) {
        if (thread != sim_thread_current)
            atomic_store_explicit(&thread->counters[SIM_COUNT_RUNNING], 0, memory_order_relaxed);
    }
}
