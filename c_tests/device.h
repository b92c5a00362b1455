/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The first RDMA device, and what most tests do with the library. */
#ifndef AMR_DEVICE_H
#define AMR_DEVICE_H

#include "check.h"
#include "sim/sim.h"

#include <amr/amr.h>
#include <errno.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE ((size_t)4096)
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

struct device {
    struct ibv_context *context;
    struct ibv_pd *pd;
};

/* Where a device was asked for, its absence is a failure: a skipped test proves nothing. */
__attribute__((noreturn)) static inline void no_device(const char *what) {
    const char *required = getenv("AMR_REQUIRE_DEVICE");

    if (required != NULL && strcmp(required, "1") == 0)
        FAIL("%s, and AMR_REQUIRE_DEVICE=1", what);
    skip("%s", what);
}

/* Most tests can do without real pins, which containers often forbid. */
static inline void pin_if_possible(void) {
    if (!sim_can_pin())
        CHECK_EQ(sim_configure("pins=0"), 0);
}

static inline struct device open_device(void) {
    struct device device;
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);

    if (list == NULL || count == 0)
        no_device("no RDMA device");
    if (sim_present())
        pin_if_possible();
    device.context = ibv_open_device(list[0]);
    if (device.context == NULL)
        no_device("the RDMA device cannot be opened");
    ibv_free_device_list(list);
    device.pd = ibv_alloc_pd(device.context);
    CHECK(device.pd != NULL);
    return device;
}

/* For tests that steer the device. */
static inline struct device open_sim(void) {
    if (!sim_present())
        no_device("not the simulated device");
    return open_device();
}

/* For tests of what the kernel says to a registration. */
static inline struct device open_pinning_device(void) {
    if (sim_present() && !sim_can_pin())
        no_device("the simulated device cannot pin memory here");
    return open_device();
}

/* Fails if a region is left, since the PD is then in use. */
static inline void close_device(struct device device) {
    CHECK_EQ(ibv_dealloc_pd(device.pd), 0);
    CHECK_EQ(ibv_close_device(device.context), 0);
}

/* Back to the settings of the environment, with the gate open and all counters at zero. */
static inline void reset_sim(void) {
    sim_reset();
    pin_if_possible();
}

static inline struct sim_counts sim_counts(void) {
    struct sim_counts counts;

    sim_get_counts(&counts);
    return counts;
}

static inline uint64_t verbs_calls(void) {
    struct sim_counts counts = sim_counts();

    return counts.reg_calls + counts.dereg_calls + counts.running;
}

/* Waits until so many calls are inside the device. */
static inline void wait_running(unsigned count) {
    CHECK_EQ(sim_wait_running(count, -1), 0);
}

static inline void *map_pages(size_t length) {
    void *pages = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(pages != MAP_FAILED);
    return pages;
}

static inline pid_t thread_id(void) {
    return (pid_t)syscall(SYS_gettid);
}

/* Zero stands for the default. */
static inline struct amr_engine *new_engine(uint32_t workers, uint32_t queue_depth) {
    struct amr_engine_attr attr;
    struct amr_engine *engine;

    memset(&attr, 0, sizeof(attr));
    attr.size = sizeof(attr);
    attr.workers = workers;
    attr.queue_depth = queue_depth;
    engine = amr_create_engine(&attr);
    CHECK(engine != NULL);
    return engine;
}

static inline struct amr_cq *new_cq(struct amr_engine *engine, uint32_t capacity) {
    struct amr_cq *cq = amr_create_cq(engine, capacity);

    CHECK(cq != NULL);
    return cq;
}

static inline struct amr_stats stats_of(struct amr_engine *engine) {
    struct amr_stats stats;

    memset(&stats, 0, sizeof(stats));
    stats.size = sizeof(stats);
    CHECK_EQ(amr_query_stats(engine, &stats), 0);
    return stats;
}

static inline struct amr_wr reg_wr(uint64_t wr_id, struct ibv_pd *pd, void *addr, size_t length,
                                   unsigned access) {
    struct amr_wr wr;

    memset(&wr, 0, sizeof(wr));
    wr.wr_id = wr_id;
    wr.opcode = AMR_OP_REG_MR;
    wr.op.reg_mr.pd = pd;
    wr.op.reg_mr.addr = addr;
    wr.op.reg_mr.length = length;
    wr.op.reg_mr.access = access;
    return wr;
}

static inline struct amr_wr dereg_wr(uint64_t wr_id, struct ibv_mr *mr) {
    struct amr_wr wr;

    memset(&wr, 0, sizeof(wr));
    wr.wr_id = wr_id;
    wr.opcode = AMR_OP_DEREG_MR;
    wr.op.dereg_mr.mr = mr;
    return wr;
}

static inline void post(struct amr_cq *cq, struct amr_wr wr) {
    CHECK_EQ(amr_post(cq, &wr, 1, NULL), 0);
}

static inline void post_reg(struct amr_cq *cq, uint64_t wr_id, struct ibv_pd *pd, void *addr,
                            size_t length) {
    post(cq, reg_wr(wr_id, pd, addr, length, ACCESS));
}

/* Reads exactly so many completions, and waits for them as long as it takes. */
static inline void read_wcs(struct amr_cq *cq, struct amr_wc *wc, int count) {
    while (count > 0) {
        int got = amr_wait_cq(cq, count, wc, -1);

        CHECK(got > 0 && got <= count);
        wc += got;
        count -= got;
    }
}

static inline struct amr_wc read_wc(struct amr_cq *cq) {
    struct amr_wc wc;

    read_wcs(cq, &wc, 1);
    return wc;
}

static inline void check_empty(struct amr_cq *cq) {
    struct amr_wc wc;

    CHECK_EQ(amr_poll_cq(cq, 1, &wc), 0);
}

/* A registration on the cq, of which nothing else is expected meanwhile. */
static inline struct ibv_mr *reg(struct amr_cq *cq, struct ibv_pd *pd, void *addr, size_t length) {
    struct amr_wc wc;

    post_reg(cq, 0, pd, addr, length);
    wc = read_wc(cq);
    CHECK_EQ(wc.status, 0);
    CHECK(wc.mr != NULL);
    return wc.mr;
}

/* The kernel ends such a wait also for work of io_uring, with which the simulated device pins. */
static inline struct epoll_event wait_epoll(int epoll) {
    struct epoll_event event;
    int count;

    while ((count = epoll_wait(epoll, &event, 1, -1)) < 0)
        CHECK_EQ(errno, EINTR);
    CHECK_EQ(count, 1);
    return event;
}

/* What a callback heard. */
struct outcome {
    sem_t arrived;
    int calls; /* atomic */
    int status;
    struct ibv_mr *mr;
    pid_t thread;
};

static inline void outcome_init(struct outcome *outcome) {
    memset(outcome, 0, sizeof(*outcome));
    CHECK_EQ(sem_init(&outcome->arrived, 0, 0), 0);
}

static inline void outcome_callback(struct ibv_mr *mr, int status, void *ctx) {
    struct outcome *outcome = (struct outcome *)ctx;

    outcome->mr = mr;
    outcome->status = status;
    outcome->thread = thread_id();
    __atomic_add_fetch(&outcome->calls, 1, __ATOMIC_RELEASE);
    sem_post(&outcome->arrived);
}

static inline void outcome_wait(struct outcome *outcome) {
    while (sem_wait(&outcome->arrived) != 0)
        CHECK_EQ(errno, EINTR);
}

static inline void outcome_end(struct outcome *outcome) {
    CHECK_EQ(__atomic_load_n(&outcome->calls, __ATOMIC_ACQUIRE), 1);
    sem_destroy(&outcome->arrived);
}

#endif /* AMR_DEVICE_H */
