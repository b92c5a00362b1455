/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Several threads do by chance whatever may be done, with two engines and several queues: post one
 * or many, poll, wait, cancel, drain, look at counters, make and destroy queues and engines, and
 * have callbacks that post again. A ledger holds that each request which was taken is over exactly
 * once, on its queue or by its callback, and that no region is left.
 *
 * random_use [REQUESTS [SEED]]: prints the ledger and the seed. What the threads do depends on the
 * seed alone; how they meet does not.
 */
#include "device.h"
#include "process.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { THREADS = 4, QUEUES = 3, SLOTS = 512, STASH = 128, BATCH = 16, PAGES = 64 };

struct ledger {
    uint64_t posted, refused, succeeded, failed, cancelled, waited;
};

struct worker {
    pthread_t thread;
    uint64_t random;
    unsigned number;
    struct ibv_mr *stash[STASH]; /* regions that are this thread's to deregister */
    int stashed;
    struct ledger ledger;
};

static struct device device;
static struct amr_engine *engines[2];
static struct amr_cq *queues[QUEUES];
static char *buffer;
static uint64_t wanted;
static uint64_t slots[THREADS * SLOTS]; /* atomic: the wr_id under way there, or 0 */
static uint64_t taken;                  /* atomic: requests of all threads */

/* xorshift64*, which is enough to choose by. */
static uint64_t chance(struct worker *worker, uint64_t choices) {
    worker->random ^= worker->random >> 12;
    worker->random ^= worker->random << 25;
    worker->random ^= worker->random >> 27;
    return (worker->random * 0x2545F4914F6CDD1DULL >> 33) % choices;
}

/* wr_id: how often the slot was used, the queue, the slot. Never 0. */
static uint64_t next_id(struct worker *worker, unsigned queue) {
    static __thread uint64_t uses;

    for (unsigned i = 0; i < SLOTS; i++) {
        unsigned slot = worker->number * SLOTS + (unsigned)(uses % SLOTS);

        uses++;
        if (__atomic_load_n(&slots[slot], __ATOMIC_ACQUIRE) == 0)
            return uses << 24 | (uint64_t)queue << 16 | slot;
    }
    return 0;
}

static void put_away(struct worker *worker, struct ibv_mr *mr) {
    if (worker->stashed < STASH)
        worker->stash[worker->stashed++] = mr;
    else
        CHECK_EQ(ibv_dereg_mr(mr), 0);
}

/* One request is over: for the first time, and on its own queue. */
static void settle(struct worker *worker, const struct amr_wc *wc, unsigned queue) {
    uint64_t expected = wc->wr_id;

    CHECK_EQ(wc->wr_id >> 16 & 0xff, queue);
    if (!__atomic_compare_exchange_n(&slots[wc->wr_id & 0xffff], &expected, 0, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        FAIL("completion %#llx, but %#llx is under way there", (unsigned long long)wc->wr_id,
             (unsigned long long)expected);
    CHECK((wc->mr != NULL) == ((wc->opcode == AMR_OP_REG_MR) == (wc->status == 0)));
    if (wc->mr != NULL)
        put_away(worker, wc->mr);
    if (wc->status == 0)
        worker->ledger.succeeded++;
    else if (wc->status == ECANCELED)
        worker->ledger.cancelled++;
    else
        worker->ledger.failed++;
    CHECK(wc->status == 0 || wc->status == ECANCELED ||
          (wc->status == EFAULT && wc->opcode == AMR_OP_REG_MR));
}

static void do_post(struct worker *worker) {
    unsigned queue = (unsigned)chance(worker, QUEUES);
    size_t count = 0, limit = 1 + chance(worker, BATCH), posted = 0;
    struct amr_wr wrs[BATCH];
    int status;

    while (count < limit) {
        uint64_t id = next_id(worker, queue);

        if (id == 0)
            break;
        if (worker->stashed > 0 && chance(worker, 2) == 0)
            wrs[count] = dereg_wr(id, worker->stash[--worker->stashed]);
        else
            wrs[count] = reg_wr(id, device.pd, buffer + chance(worker, PAGES) * PAGE, PAGE, ACCESS);
        /* Before it is posted: it may be over before that returns. */
        __atomic_store_n(&slots[id & 0xffff], id, __ATOMIC_RELEASE);
        count++;
    }
    status = amr_post(queues[queue], wrs, count, &posted);
    CHECK(status == 0 ? posted == count : status == EAGAIN && posted < count);
    worker->ledger.posted += posted;
    worker->ledger.refused += count - posted;
    __atomic_add_fetch(&taken, posted, __ATOMIC_RELAXED);
    for (; posted < count; posted++) {
        __atomic_store_n(&slots[wrs[posted].wr_id & 0xffff], 0, __ATOMIC_RELEASE);
        if (wrs[posted].opcode == AMR_OP_DEREG_MR)
            put_away(worker, wrs[posted].op.dereg_mr.mr);
    }
}

static void do_read(struct worker *worker, unsigned queue, int timeout_ms) {
    int limit = 1 + (int)chance(worker, 2 * BATCH);
    struct amr_wc wcs[2 * BATCH];
    int count = timeout_ms == 0 ? amr_poll_cq(queues[queue], limit, wcs)
                                : amr_wait_cq(queues[queue], limit, wcs, timeout_ms);

    CHECK(count >= 0 && count <= limit);
    for (int i = 0; i < count; i++)
        settle(worker, &wcs[i], queue);
}

/* Any request that is or was under way. */
static void do_cancel(struct worker *worker) {
    uint64_t id = __atomic_load_n(&slots[chance(worker, THREADS * SLOTS)], __ATOMIC_ACQUIRE);
    int status;

    if (id == 0)
        return;
    status = amr_cancel(queues[id >> 16 & 0xff], id);
    CHECK(status == 0 || status == EALREADY || status == ENOENT);
}

/* Destroyed with a registration unread, or with nothing. */
static void do_own_queue(struct worker *worker) {
    struct amr_engine *engine = engines[chance(worker, 2)];
    struct amr_cq *cq = new_cq(engine, 4);
    struct amr_wr wr = reg_wr(1, device.pd, buffer + PAGE, PAGE, ACCESS);
    int status = amr_post(cq, &wr, 1, NULL);

    CHECK(status == 0 || status == EAGAIN);
    while ((status = amr_destroy_cq(cq)) == EBUSY) {
        amr_cancel(cq, 1);
        sched_yield();
    }
    CHECK_EQ(status, 0);
}

/* Registers and deregisters by callbacks that post again, so many times. */
struct chain {
    struct amr_engine *engine;
    int under_way; /* atomic */
    int left;
};

static struct ledger of_chains; /* atomic */

static void count(uint64_t *counter) {
    __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

static void on_link(const struct amr_wc *wc);

/* Says whether it was taken: then the chain is its callback's. */
static int post_link(struct chain *chain, struct amr_wr wr) {
    int status;

    __atomic_store_n(&chain->under_way, 1, __ATOMIC_RELEASE);
    status = amr_post_callback(chain->engine, &wr, 1, on_link, NULL);
    CHECK(status == 0 || status == EAGAIN || status == ESHUTDOWN);
    count(status == 0 ? &of_chains.posted : &of_chains.refused);
    if (status == 0)
        count(&taken);
    return status == 0;
}

static void post_chain(struct chain *chain) {
    char *memory = buffer + (chain->left + 1) % PAGES * PAGE;

    if (chain->left-- == 0 ||
        !post_link(chain, reg_wr((uintptr_t)chain, device.pd, memory, PAGE, ACCESS)))
        free(chain);
}

static void on_link(const struct amr_wc *wc) {
    struct chain *chain = (struct chain *)(uintptr_t)wc->wr_id;

    CHECK_EQ(__atomic_exchange_n(&chain->under_way, 0, __ATOMIC_ACQ_REL), 1);
    CHECK(wc->status == 0 || wc->status == ECANCELED || wc->status == EFAULT);
    count(wc->status == 0           ? &of_chains.succeeded
          : wc->status == ECANCELED ? &of_chains.cancelled
                                    : &of_chains.failed);
    if (wc->mr != NULL && wc->status == 0 && post_link(chain, dereg_wr((uintptr_t)chain, wc->mr)))
        return;
    if (wc->mr != NULL)
        CHECK_EQ(ibv_dereg_mr(wc->mr), 0);
    post_chain(chain);
}

static void do_chain(struct worker *worker, struct amr_engine *engine) {
    struct chain *chain = (struct chain *)calloc(1, sizeof(*chain));

    CHECK(chain != NULL);
    chain->engine = engine;
    chain->left = 1 + (int)chance(worker, 2 * PAGES);
    post_chain(chain);
}

/* Destroyed while callbacks post to it. */
static void do_own_engine(struct worker *worker) {
    struct amr_engine *engine = new_engine(2, 8);

    for (int i = 0; i < 4; i++)
        do_chain(worker, engine);
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

static void *work(void *arg) {
    struct worker *worker = (struct worker *)arg;

    while (__atomic_load_n(&taken, __ATOMIC_RELAXED) < wanted) {
        uint64_t choice = chance(worker, 1000);
        unsigned queue = (unsigned)chance(worker, QUEUES);
        struct pollfd pollfd;

        if (choice < 450) {
            do_post(worker);
        } else if (choice < 900) {
            do_read(worker, queue, 0);
        } else if (choice < 980) {
            do_cancel(worker);
        } else if (choice < 985) {
            do_read(worker, queue, 1);
            worker->ledger.waited++;
        } else if (choice < 990) {
            int status = amr_drain(engines[choice % 2], device.pd, (int)chance(worker, 2));

            CHECK(status == 0 || status == ETIMEDOUT);
        } else if (choice < 993) {
            do_own_queue(worker);
        } else if (choice < 996) {
            do_chain(worker, engines[choice % 2]);
        } else if (choice < 997) {
            do_own_engine(worker);
        } else if (choice < 998) {
            CHECK_EQ(stats_of(engines[choice % 2]).workers, 2);
        } else {
            pollfd = (struct pollfd){.fd = amr_cq_fd(queues[queue]), .events = POLLIN};
            CHECK(poll(&pollfd, 1, 0) >= 0);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    static struct worker workers[THREADS];
    uint64_t seed =
        argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL) ^ (uint64_t)getpid();
    struct ledger sum;

    wanted = argc > 1 ? strtoull(argv[1], NULL, 0) : 200000;
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout); /* it is wanted all the more if this does not end well */
    device = open_sim();
    CHECK_EQ(sim_configure("pins=0,clobber=1"), 0);
    buffer = map_pages(PAGES * PAGE);
    sim_fail_range(buffer, PAGE, EFAULT);
    engines[0] = new_engine(2, 64);
    engines[1] = new_engine(2, 1024);
    for (unsigned i = 0; i < QUEUES; i++)
        queues[i] = new_cq(engines[i % 2], i == 0 ? 32 : 512);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].number = i;
        workers[i].random = (seed + i) * 0x9E3779B97F4A7C15ULL | 1;
        CHECK_EQ(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(workers[i].thread, NULL), 0);

    for (unsigned i = 0; i < 2; i++)
        CHECK_EQ(amr_drain(engines[i], NULL, -1), 0);
    for (unsigned i = 0; i < QUEUES; i++) {
        struct amr_wc wc;

        while (amr_poll_cq(queues[i], 1, &wc) == 1)
            settle(&workers[0], &wc, i);
        CHECK_EQ(amr_destroy_cq(queues[i]), 0);
    }
    for (unsigned i = 0; i < THREADS * SLOTS; i++)
        if (slots[i] != 0)
            FAIL("request %#llx was lost", (unsigned long long)slots[i]);
    sum = of_chains;
    for (unsigned i = 0; i < THREADS; i++) {
        const struct ledger *own = &workers[i].ledger;

        sum.posted += own->posted;
        sum.refused += own->refused;
        sum.succeeded += own->succeeded;
        sum.failed += own->failed;
        sum.cancelled += own->cancelled;
        while (workers[i].stashed > 0)
            CHECK_EQ(ibv_dereg_mr(workers[i].stash[--workers[i].stashed]), 0);
    }
    printf("posted     %12llu\nsucceeded  %12llu\nfailed     %12llu\ncancelled  %12llu\n"
           "refused    %12llu (not taken: full)\nlost       %12lld\n",
           (unsigned long long)sum.posted, (unsigned long long)sum.succeeded,
           (unsigned long long)sum.failed, (unsigned long long)sum.cancelled,
           (unsigned long long)sum.refused,
           (long long)(sum.posted - sum.succeeded - sum.failed - sum.cancelled));
    CHECK_EQ(sum.posted, sum.succeeded + sum.failed + sum.cancelled);
    for (unsigned i = 0; i < 2; i++) {
        struct amr_stats stats = stats_of(engines[i]);

        CHECK_EQ(stats.submitted, stats.completed);
        CHECK_EQ(stats.queued + stats.running, 0);
        CHECK_EQ(amr_destroy_engine(engines[i]), 0);
    }
    CHECK_EQ(sim_counts().live_mrs, 0);
    close_device(device);
    return 0;
}
