/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Tests the simulated device itself: one line for each check, exit status 1 if any failed.
 *
 *     amr_sim_selftest [FOLDER OF THE LIBRARY WITHOUT ibv_reg_dmabuf_mr]
 *
 * Some checks need a process of their own; they run this program again with another first argument.
 */
#include "sim.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                 IBV_ACCESS_REMOTE_ATOMIC,
};

static int failures;
static struct ibv_context *context;
static struct ibv_pd *pd;
static char *program;

static void check(bool holds, const char *what) {
    printf("%s  %s\n", holds ? "ok  " : "FAIL", what);
    fflush(stdout);
    failures += !holds;
}

static char *map(size_t length, int protection) {
    char *memory = mmap(NULL, length, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return memory;
}

static struct ibv_mr *reg(void *addr, size_t length, unsigned access) {
    return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access);
}

/* Whether a registration fails with that errno value. */
static bool reg_fails(void *addr, size_t length, unsigned access, int err) {
    struct ibv_mr *mr;

    errno = -1;
    mr = reg(addr, length, access);
    return mr == NULL && errno == err;
}

static bool reg_works(void *addr, size_t length, unsigned access) {
    struct ibv_mr *mr = reg(addr, length, access);

    return mr != NULL && ibv_dereg_mr(mr) == 0;
}

static struct sim_counts counts(void) {
    struct sim_counts counts;

    sim_get_counts(&counts);
    return counts;
}

static uint64_t now_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A line of /proc/self/status, in KiB. */
static long status_kib(const char *key) {
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0)
            value = strtol(line + strlen(key) + 1, NULL, 10);
    }
    if (file != NULL)
        fclose(file);
    return value;
}

/* ---- Objects --------------------------------------------------------------------------------- */

static void test_objects(void) {
    struct ibv_device **list;
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    union ibv_gid gid;
    int count = 0;

    check(sim_configure("devices=2") == 0, "settings are taken");
    list = ibv_get_device_list(&count);
    check(list != NULL && count == 2 && strcmp(ibv_get_device_name(list[1]), "sim1") == 0,
          "devices=2 gives sim0 and sim1");
    context = ibv_open_device(list[0]);
    check(context != NULL && ibv_get_device_guid(list[0]) != ibv_get_device_guid(list[1]),
          "a device opens, GUIDs differ");
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    check(pd != NULL && counts().live_pds == 1 && counts().live_contexts == 1,
          "objects are counted");
    check(ibv_query_device(context, &attr) == 0 && attr.max_mr > 0 && attr.phys_port_cnt == 1,
          "ibv_query_device");
    check(ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE,
          "ibv_query_port: active");
    check(ibv_query_port(context, 2, &port) != 0, "there is one port");
    check(ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_gid");
    check(ibv_close_device(context) == EBUSY, "a context with a domain is busy");
    check(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 0) == EOPNOTSUPP,
          "ibv_advise_mr: EOPNOTSUPP");
}

/* ---- Registration ---------------------------------------------------------------------------- */

static void test_arguments(void) {
    char *memory = map(4 * PAGE, PROT_READ | PROT_WRITE);
    struct ibv_mr *(*reg_dmabuf)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);
    struct ibv_mr *mr, *other;

    /* Not by name, for this program has to load with the library that lacks it too. */
    SIM_LOOK_UP(reg_dmabuf, "ibv_reg_dmabuf_mr");
    check(reg_fails(memory, 0, 0, EINVAL), "length 0: EINVAL");
    check(reg_fails(memory, PAGE, IBV_ACCESS_REMOTE_WRITE, EINVAL),
          "remote write without local write: EINVAL");
    check(reg_fails(memory, PAGE, IBV_ACCESS_REMOTE_ATOMIC, EINVAL),
          "remote atomic without local write: EINVAL");
    check(reg_fails(memory, SIZE_MAX, 0, EINVAL), "overflow: EINVAL");
    check(reg_fails(memory, PAGE, 1u << 18, EINVAL), "unknown access bit: EINVAL");
    check(reg_works(memory, PAGE, IBV_ACCESS_RELAXED_ORDERING), "optional access bits are taken");
    errno = 0;
    check(ibv_reg_mr_iova(pd, memory, PAGE, 1, 0) == NULL && errno == EINVAL,
          "iova with another page offset: EINVAL");
    check(reg_fails(NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND, EOPNOTSUPP),
          "implicit on-demand without odp: EOPNOTSUPP");
    sim_configure("odp=1");
    check(reg_works(NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND), "implicit on-demand with odp=1");
    sim_configure("max_mr_size=8k");
    check(reg_fails(memory, 3 * PAGE, 0, EINVAL), "more than max_mr_size: EINVAL");
    errno = 0;
    check(reg_dmabuf(pd, 0, PAGE, 0, 0, 0) == NULL && errno == EOPNOTSUPP, "dma-buf: EOPNOTSUPP");
    sim_configure("dmabuf=1");
    mr = reg_dmabuf(pd, 8192, PAGE, 0, 0, 0);
    check(mr != NULL && mr->addr == (void *)8192 && ibv_dereg_mr(mr) == 0, "dma-buf, if told so");
    sim_reset();

    mr = ibv_reg_mr(pd, memory, PAGE, IBV_ACCESS_LOCAL_WRITE);
    other = ibv_reg_mr(pd, memory, PAGE, IBV_ACCESS_LOCAL_WRITE);
    check(mr != NULL && other != NULL && mr->lkey != other->lkey, "keys differ");
    check(mr->pd == pd && mr->addr == memory && mr->length == PAGE && mr->context == context,
          "a region describes itself");
    check(counts().live_mrs == 2 && ibv_dealloc_pd(pd) == EBUSY, "a domain with regions is busy");
    check(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 2 * PAGE, 0) == 0 &&
              mr->length == 2 * PAGE && counts().live_mrs == 2,
          "ibv_rereg_mr");
    check(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(other) == 0 && counts().live_mrs == 0,
          "deregistration");
    munmap(memory, 4 * PAGE);
}

static void test_max_mr(void) {
    char *memory = map(PAGE, PROT_READ | PROT_WRITE);
    struct ibv_mr *first, *second;
    struct ibv_device_attr attr;

    sim_configure("max_mr=2");
    ibv_query_device(context, &attr);
    first = reg(memory, PAGE, 0);
    second = reg(memory, PAGE, 0);
    check(attr.max_mr == 2 && first != NULL && second != NULL && reg_fails(memory, PAGE, 0, ENOMEM),
          "max_mr=2: the third is refused with ENOMEM");
    ibv_dereg_mr(first);
    check(reg_works(memory, PAGE, 0), "and works once one is gone");
    ibv_dereg_mr(second);
    sim_reset();
    munmap(memory, PAGE);
}

static void test_pins(void) {
    size_t large = 64 << 20;
    char *memory = map(large, PROT_READ | PROT_WRITE);
    char *holes = map(4 * PAGE, PROT_READ | PROT_WRITE);
    char *constant = map(2 * PAGE, PROT_READ);
    long before = status_kib("VmPin:");
    struct ibv_mr **many = calloc(10000, sizeof(*many));
    struct ibv_mr *mr;
    int live = 0;

    mr = reg(memory, large, IBV_ACCESS_LOCAL_WRITE);
    check(mr != NULL && status_kib("VmPin:") - before == (long)large / 1024 &&
              counts().pinned_bytes == large,
          "64 MiB are pinned");
    check(mr != NULL && ibv_dereg_mr(mr) == 0 && status_kib("VmPin:") == before &&
              counts().pinned_bytes == 0,
          "and unpinned");
    mr = reg(memory + 100, PAGE, IBV_ACCESS_LOCAL_WRITE);
    check(mr != NULL && status_kib("VmPin:") - before == 8, "both pages of an unaligned range");
    ibv_dereg_mr(mr);
    mprotect(holes + PAGE, PAGE, PROT_NONE);
    munmap(holes + 3 * PAGE, PAGE);
    check(reg_fails(holes, 2 * PAGE, IBV_ACCESS_LOCAL_WRITE, EFAULT), "PROT_NONE: EFAULT");
    check(reg_fails(holes, 2 * PAGE, 0, EFAULT), "PROT_NONE, for reading: EFAULT");
    check(reg_fails(holes + 2 * PAGE, 2 * PAGE, IBV_ACCESS_LOCAL_WRITE, EFAULT), "hole: EFAULT");
    check(reg_fails(NULL, PAGE, IBV_ACCESS_LOCAL_WRITE, EFAULT), "NULL: EFAULT");
    check(reg_fails(constant, PAGE, IBV_ACCESS_LOCAL_WRITE, EFAULT),
          "read-only memory with local write: EFAULT");
    check(reg_works(constant, PAGE, IBV_ACCESS_REMOTE_READ), "read-only memory without it works");
    check(status_kib("VmPin:") == before, "failures leave no pin");
    while (live < 10000 && (many[live] = reg(memory, PAGE, IBV_ACCESS_LOCAL_WRITE)) != NULL)
        live++;
    check(live == 10000 && counts().live_mrs == 10000, "10000 live regions");
    while (live > 0 && ibv_dereg_mr(many[live - 1]) == 0)
        live--;
    check(live == 0 && status_kib("VmPin:") == before, "and none");
    free(many);
    munmap(memory, large);
    munmap(holes, 3 * PAGE);
    munmap(constant, 2 * PAGE);
}

/* ---- Told to fail, to be slow, to wait ------------------------------------------------------- */

static void test_rules(void) {
    char *memory = map(2 * PAGE, PROT_READ | PROT_WRITE);
    struct ibv_mr *mr;
    uint64_t begin;

    sim_reset();
    sim_configure("fail_nth=2:EAGAIN,fail_nth=3:0");
    check(reg_works(memory, PAGE, 0), "fail_nth: the first works");
    check(reg_fails(memory, PAGE, 0, EAGAIN), "the second fails");
    check(reg_fails(memory, PAGE, 0, 0), "the third gives NULL with errno 0");
    check(reg_works(memory, PAGE, 0), "the fourth works");
    sim_reset();
    sim_configure("fail_after=1:12");
    check(reg_works(memory, PAGE, 0) && reg_fails(memory, PAGE, 0, ENOMEM) &&
              reg_fails(memory, PAGE, 0, ENOMEM),
          "fail_after");
    sim_reset();
    sim_configure("dereg_fail_first=2:EBUSY");
    mr = reg(memory, PAGE, 0);
    check(ibv_dereg_mr(mr) == EBUSY && ibv_dereg_mr(mr) == EBUSY && counts().live_mrs == 1 &&
              ibv_dereg_mr(mr) == 0 && counts().live_mrs == 0,
          "a deregistration that fails leaves the region alive");
    sim_reset();
    sim_fail_range(memory + PAGE, 1, EFAULT);
    check(reg_works(memory, PAGE, 0) && reg_fails(memory, PAGE + 1, 0, EFAULT), "sim_fail_range");
    sim_reset();
    sim_configure("clobber");
    errno = 0;
    mr = reg(memory, PAGE, 0);
    check(mr != NULL && errno != 0, "clobber: errno is dirty after success");
    check(reg_fails(memory, 0, 0, EINVAL), "and right after a failure");
    ibv_dereg_mr(mr);
    sim_reset();
    begin = now_ms();
    sim_configure("reg_delay_us=30000,delay_nth=1:20000,slow_len=8k:50000");
    check(reg_works(memory, 2 * PAGE, 0) && now_ms() - begin >= 100, "delays add up");
    begin = now_ms();
    check(reg_works(memory, PAGE, 0) && now_ms() - begin >= 30 && now_ms() - begin < 100,
          "each to the calls that it is for");
    sim_configure("busy");
    begin = now_ms();
    check(reg_works(memory, PAGE, 0) && now_ms() - begin >= 30, "busy delay");
    sim_reset();
    check(sim_configure("fail_nth=x") == EINVAL && sim_configure("unknown=1") == EINVAL &&
              sim_configure("dereg_fail_nth=1:0") == EINVAL && reg_works(memory, PAGE, 0),
          "a bad setting changes nothing");
    munmap(memory, 2 * PAGE);
}

static void *reg_and_dereg(void *memory) {
    return (void *)(intptr_t)!reg_works(memory, PAGE, 0);
}

static void test_gate(void) {
    char *memory = map(PAGE, PROT_READ | PROT_WRITE);
    pthread_t threads[4];
    int i;

    sim_reset();
    sim_gate_close(SIM_REG);
    for (i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, reg_and_dereg, memory);
    check(sim_wait_running(4, 5000) == 0, "four calls wait at the gate");
    check(sim_wait_running(5, 10) == ETIMEDOUT && counts().reg_calls == 0, "and none is through");
    sim_gate_pass(1);
    while (counts().dereg_calls == 0)
        sched_yield();
    check(counts().reg_calls == 1, "one passes");
    sim_gate_open();
    for (i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    check(counts().dereg_calls == 4 && counts().running == 0 && counts().peak_running == 4,
          "all pass, and the peak was four");
    sim_reset();
    munmap(memory, PAGE);
}

static void test_records(void) {
    char *memory = map(PAGE, PROT_READ | PROT_WRITE);
    struct sim_call calls[8];
    struct ibv_mr *mr;
    size_t count;

    sim_record(1);
    mr = ibv_reg_mr_iova2(pd, memory, PAGE, 0x10000, IBV_ACCESS_RELAXED_ORDERING);
    ibv_dereg_mr(mr);
    reg_fails(memory, 0, 0, EINVAL);
    count = sim_calls(calls, 8);
    check(count == 3 && calls[0].symbol == SIM_IBV_REG_MR_IOVA2 && calls[0].pd == pd &&
              calls[0].addr == memory && calls[0].length == PAGE && calls[0].iova == 0x10000 &&
              calls[0].access == IBV_ACCESS_RELAXED_ORDERING && calls[0].mr == mr &&
              calls[0].succeeded && calls[0].tid == (int)syscall(SYS_gettid),
          "a call is recorded with its arguments");
    check(calls[1].symbol == SIM_IBV_DEREG_MR && calls[1].mr == mr && calls[1].succeeded,
          "a deregistration is recorded");
    check(!calls[2].succeeded && calls[2].result == EINVAL && calls[2].end_ns >= calls[2].begin_ns,
          "a failure is recorded");
    sim_record(0);
    sim_reset();
    munmap(memory, PAGE);
}

static void *churn(void *memory) {
    struct ibv_mr *mine[16];

    for (int round = 0; round < 2000; round++) {
        for (int i = 0; i < 16; i++)
            mine[i] = reg(memory, PAGE, 0);
        for (int i = 0; i < 16; i++) {
            if (mine[i] == NULL || ibv_dereg_mr(mine[i]) != 0)
                return (void *)1;
        }
    }
    return NULL;
}

static void test_instant(void) {
    char *memory = map(PAGE, PROT_READ | PROT_WRITE);
    pthread_t threads[8];
    bool worked = true;

    sim_reset();
    sim_configure("pins=0");
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, churn, memory);
    for (int i = 0; i < 8; i++) {
        void *result;

        pthread_join(threads[i], &result);
        worked &= result == NULL;
    }
    check(worked && counts().reg_calls == 8 * 32000 && counts().dereg_calls == 8 * 32000 &&
              counts().live_mrs == 0,
          "pins=0: eight threads, all calls counted");
    sim_reset();
    munmap(memory, PAGE);
}

/* ---- Data transfer --------------------------------------------------------------------------- */

struct end {
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    char *memory;
    struct ibv_mr *mr;
};

enum { BUFFER = 1 << 20 };

static void end_open(struct end *end) {
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 16,
                .max_recv_wr = 16,
                .max_send_sge = 4,
                .max_recv_sge = 4,
                .max_inline_data = 64},
    };

    end->channel = ibv_create_comp_channel(context);
    end->cq = ibv_create_cq(context, 64, end, end->channel, 0);
    init.send_cq = init.recv_cq = end->cq;
    end->qp = ibv_create_qp(pd, &init);
    end->memory = map(BUFFER, PROT_READ | PROT_WRITE);
    end->mr = ibv_reg_mr(pd, end->memory, BUFFER, ALL_ACCESS);
    if (end->qp == NULL || end->mr == NULL) {
        perror("end_open");
        exit(1);
    }
}

static void end_close(struct end *end) {
    ibv_dereg_mr(end->mr);
    munmap(end->memory, BUFFER);
    check(ibv_destroy_cq(end->cq) == EBUSY, "a completion queue with queue pairs is busy");
    ibv_destroy_qp(end->qp);
    ibv_destroy_cq(end->cq);
    check(ibv_destroy_comp_channel(end->channel) == 0, "an unused channel goes");
}

static bool end_connect(struct end *end, uint32_t peer) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = ALL_ACCESS,
    };
    int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    int rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
              IBV_QP_MAX_QP_RD_ATOMIC;

    if (ibv_modify_qp(end->qp, &attr, init) != 0)
        return false;
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    if (ibv_modify_qp(end->qp, &attr, rtr) != 0)
        return false;
    attr.qp_state = IBV_QPS_RTS;
    return ibv_modify_qp(end->qp, &attr, rts) == 0;
}

static struct ibv_wc wait_wc(struct end *end) {
    struct ibv_wc wc;
    uint64_t limit = now_ms() + 15000;

    while (ibv_poll_cq(end->cq, 1, &wc) == 0) {
        if (now_ms() > limit) {
            check(false, "a completion arrives");
            exit(1);
        }
        usleep(50);
    }
    return wc;
}

static void post(struct end *end, enum ibv_wr_opcode opcode, struct ibv_sge *sges, int count,
                 uint64_t remote_addr, uint32_t rkey) {
    struct ibv_send_wr wr = {
        .wr_id = 7,
        .sg_list = sges,
        .num_sge = count,
        .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED,
        .imm_data = 42,
        .wr.rdma = {.remote_addr = remote_addr, .rkey = rkey},
    };
    struct ibv_send_wr *bad = NULL;

    if (ibv_post_send(end->qp, &wr, &bad) != 0)
        check(false, "ibv_post_send");
}

static void post_recv(struct end *end, size_t offset, uint32_t length) {
    struct ibv_sge sge = {(uintptr_t)end->memory + offset, length, end->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 8, .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad;

    if (ibv_post_recv(end->qp, &wr, &bad) != 0)
        check(false, "ibv_post_recv");
}

static void test_transfers(struct end *a, struct end *b) {
    struct ibv_sge two[2] = {{(uintptr_t)a->memory, 300000, a->mr->lkey},
                             {(uintptr_t)a->memory + 500000, 100000, a->mr->lkey}};
    struct ibv_sge one = {(uintptr_t)a->memory, BUFFER, a->mr->lkey};
    struct ibv_cq *cq;
    struct ibv_wc wc;
    void *cq_context;

    memset(a->memory, 'a', BUFFER);
    memset(a->memory + 500000, 'A', 100000);
    post(a, IBV_WR_RDMA_WRITE, two, 2, (uintptr_t)b->memory + 5, b->mr->rkey);
    wc = wait_wc(a);
    check(wc.status == IBV_WC_SUCCESS && wc.wr_id == 7 && wc.opcode == IBV_WC_RDMA_WRITE &&
              b->memory[4] == 0 && memcmp(b->memory + 5, a->memory, 300000) == 0 &&
              b->memory[300005] == 'A' && b->memory[400004] == 'A' && b->memory[400005] == 0,
          "WRITE from two places");
    memset(b->memory, 'b', BUFFER);
    post(a, IBV_WR_RDMA_READ, &one, 1, (uintptr_t)b->memory, b->mr->rkey);
    wc = wait_wc(a);
    check(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ &&
              memcmp(a->memory, b->memory, BUFFER) == 0,
          "READ of 1 MiB");

    memcpy(a->memory, "hello", 6);
    one.length = 6;
    ibv_req_notify_cq(b->cq, 0);
    post(a, IBV_WR_SEND_WITH_IMM, &one, 1, 0, 0);
    usleep(20000);
    check(ibv_poll_cq(a->cq, 1, &wc) == 0, "SEND waits for a receive");
    post_recv(b, 100, 50);
    wc = wait_wc(a);
    check(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND, "SEND completes");
    check(ibv_get_cq_event(b->channel, &cq, &cq_context) == 0 && cq == b->cq && cq_context == b,
          "the channel tells");
    ibv_ack_cq_events(b->cq, 1);
    wc = wait_wc(b);
    check(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == 6 &&
              wc.imm_data == 42 && (wc.wc_flags & IBV_WC_WITH_IMM) && wc.wr_id == 8 &&
              strcmp(b->memory + 100, "hello") == 0,
          "RECV with immediate data");
    post_recv(b, 0, 0);
    post(a, IBV_WR_RDMA_WRITE_WITH_IMM, &one, 1, (uintptr_t)b->memory, b->mr->rkey);
    check(wait_wc(a).status == IBV_WC_SUCCESS && wait_wc(b).opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
              strcmp(b->memory, "hello") == 0,
          "WRITE with immediate data");
}

static void test_atomics(struct end *a, struct end *b) {
    struct ibv_sge sge = {(uintptr_t)a->memory, 8, a->mr->lkey};
    uint64_t *target = (uint64_t *)(void *)b->memory;
    uint64_t *before = (uint64_t *)(void *)a->memory;
    struct ibv_send_wr wr = {
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.atomic = {(uintptr_t)target, 5, 0, b->mr->rkey},
    };
    struct ibv_send_wr *bad;

    *target = 10;
    ibv_post_send(a->qp, &wr, &bad);
    check(wait_wc(a).status == IBV_WC_SUCCESS && *before == 10 && *target == 15, "FETCH_ADD");
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic.compare_add = 15;
    wr.wr.atomic.swap = 99;
    ibv_post_send(a->qp, &wr, &bad);
    check(wait_wc(a).status == IBV_WC_SUCCESS && *before == 15 && *target == 99, "CMP_SWP");
}

static void reconnect(struct end *a, struct end *b) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    struct ibv_wc wc;

    ibv_modify_qp(a->qp, &attr, IBV_QP_STATE);
    ibv_modify_qp(b->qp, &attr, IBV_QP_STATE);
    while (ibv_poll_cq(a->cq, 1, &wc) > 0 || ibv_poll_cq(b->cq, 1, &wc) > 0)
        ;
    if (!end_connect(a, b->qp->qp_num) || !end_connect(b, a->qp->qp_num))
        check(false, "queue pairs connect again");
}

static void test_refusals(struct end *a, struct end *b) {
    struct ibv_sge sge = {(uintptr_t)a->memory, 64, a->mr->lkey};
    struct ibv_mr *constant = ibv_reg_mr(pd, b->memory, BUFFER, IBV_ACCESS_REMOTE_READ);
    struct ibv_mr *moved = ibv_reg_mr_iova(pd, b->memory, PAGE, 0x7000, ALL_ACCESS);
    uint32_t old_key;

    post(a, IBV_WR_RDMA_WRITE, &sge, 1, 0x7010, moved->rkey);
    check(wait_wc(a).status == IBV_WC_SUCCESS && memcmp(b->memory + 16, a->memory, 64) == 0,
          "addresses are those of the iova");
    post(a, IBV_WR_RDMA_WRITE, &sge, 1, (uintptr_t)b->memory, moved->rkey);
    check(wait_wc(a).status == IBV_WC_REM_ACCESS_ERR, "and no others");
    reconnect(a, b);
    post(a, IBV_WR_RDMA_WRITE, &sge, 1, (uintptr_t)b->memory, constant->rkey);
    check(wait_wc(a).status == IBV_WC_REM_ACCESS_ERR, "WRITE to a region for reading is refused");
    post(a, IBV_WR_RDMA_WRITE, &sge, 1, (uintptr_t)b->memory, b->mr->rkey);
    check(wait_wc(a).status == IBV_WC_WR_FLUSH_ERR, "and the queue pair is in the error state");
    reconnect(a, b);
    post(a, IBV_WR_RDMA_READ, &sge, 1, (uintptr_t)b->memory + BUFFER - 63, b->mr->rkey);
    check(wait_wc(a).status == IBV_WC_REM_ACCESS_ERR, "bounds are checked");
    reconnect(a, b);
    old_key = moved->rkey;
    ibv_dereg_mr(moved);
    post(a, IBV_WR_RDMA_READ, &sge, 1, 0x7000, old_key);
    check(wait_wc(a).status == IBV_WC_REM_ACCESS_ERR, "a deregistered key is refused");
    reconnect(a, b);
    sge.lkey = old_key;
    post(a, IBV_WR_SEND, &sge, 1, 0, 0);
    check(wait_wc(a).status == IBV_WC_LOC_PROT_ERR, "a wrong local key: LOC_PROT_ERR");
    reconnect(a, b);
    ibv_dereg_mr(constant);
}

static void test_rdma(const char *settings) {
    struct end a, b;

    printf("data transfer with %s\n", settings);
    sim_configure(settings);
    end_open(&a);
    end_open(&b);
    check(a.qp->qp_num != b.qp->qp_num && counts().live_qps == 2, "queue pairs have numbers");
    check(end_connect(&a, b.qp->qp_num) && end_connect(&b, a.qp->qp_num), "and connect");
    test_transfers(&a, &b);
    test_atomics(&a, &b);
    test_refusals(&a, &b);
    end_close(&a);
    end_close(&b);
    check(counts().live_qps == 0 && counts().live_cqs == 0 && counts().live_mrs == 0,
          "nothing is left");
    sim_reset();
}

/* ---- Processes of their own ------------------------------------------------------------------ */

/* Runs this program with one argument; gives its wait status and what it wrote to stderr. */
static int run(const char *argument, const char *setting, char *output, size_t size) {
    int ends[2], status;
    size_t length = 0;
    ssize_t got;
    pid_t child;

    if (pipe(ends) != 0)
        exit(1);
    child = fork();
    if (child == 0) {
        if (setting != NULL)
            setenv("AMR_SIM", setting, 1);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(program, program, argument, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    while (length + 1 < size && (got = read(ends[0], output + length, size - 1 - length)) > 0)
        length += (size_t)got;
    output[length] = '\0';
    close(ends[0]);
    waitpid(child, &status, 0);
    return status;
}

static void child_open(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);

    context = ibv_open_device(list[0]);
    pd = ibv_alloc_pd(context);
    ibv_free_device_list(list);
}

static int child_double_dereg(void) {
    struct rlimit none = {0, 0};
    char *memory = map(PAGE, PROT_READ | PROT_WRITE);
    struct ibv_mr *mr;

    setrlimit(RLIMIT_CORE, &none);
    child_open();
    mr = reg(memory, PAGE, 0);
    ibv_dereg_mr(mr);
    reg(memory, PAGE, 0);
    ibv_dereg_mr(mr);
    return 0;
}

/* Gives up what exempts from the memlock limit. */
static void become_ordinary(rlim_t memlock) {
    struct rlimit limit = {memlock, memlock};

    setrlimit(RLIMIT_MEMLOCK, &limit);
    if (setresuid(54321, 54321, 54321) != 0 && geteuid() == 0)
        exit(1);
}

static int child_memlock(void) {
    char *memory = map(1 << 20, PROT_READ | PROT_WRITE);
    struct ibv_mr *mr;
    bool right;

    child_open();
    mr = reg(memory, PAGE, IBV_ACCESS_LOCAL_WRITE); /* while this process may do anything */
    right = mr != NULL;
    become_ordinary(256 << 10);
    right = right && reg_fails(memory, 1 << 20, IBV_ACCESS_LOCAL_WRITE, ENOMEM);
    right = right && reg_works(memory, 128 << 10, IBV_ACCESS_LOCAL_WRITE);
    right = right && ibv_dereg_mr(mr) == 0;
    become_ordinary(0);
    right = right && reg_fails(memory, PAGE, IBV_ACCESS_LOCAL_WRITE, EPERM);
    return right ? 0 : 1;
}

static void *reg_slowly(void *memory) {
    reg(memory, 2 * PAGE, 0);
    return NULL;
}

/* Exits with one call inside. */
static int child_exit(void) {
    char *memory = map(2 * PAGE, PROT_READ | PROT_WRITE);
    pthread_t slow;

    child_open();
    sim_configure("slow_len=8k:60000000");
    pthread_create(&slow, NULL, reg_slowly, memory);
    sim_wait_running(1, -1);
    return 0;
}

static void *reg_again_and_again(void *memory) {
    for (;;) {
        reg_works(memory, PAGE, 0);
        usleep(1000);
    }
    return NULL;
}

/* Exits with a thread that goes on. */
static int child_late(void) {
    pthread_t thread;

    child_open();
    pthread_create(&thread, NULL, reg_again_and_again, map(PAGE, PROT_READ | PROT_WRITE));
    return 0;
}

static void test_fork(void) {
    char *memory = map(PAGE, PROT_READ | PROT_WRITE);
    struct ibv_mr *mr = reg(memory, PAGE, IBV_ACCESS_LOCAL_WRITE);
    long pinned = status_kib("VmPin:");
    int status;
    pid_t child = fork();

    if (child == 0) {
        char *own = map(PAGE, PROT_READ | PROT_WRITE);

        _exit(reg_works(own, PAGE, IBV_ACCESS_LOCAL_WRITE) && ibv_dereg_mr(mr) == 0 ? 0 : 1);
    }
    waitpid(child, &status, 0);
    check(status == 0, "a child may register, and drop what it inherited");
    check(status_kib("VmPin:") == pinned && ibv_dereg_mr(mr) == 0, "the parent keeps its pins");
    munmap(memory, PAGE);
}

static void test_processes(const char *old_folder) {
    char report[] = "/tmp/amr-sim-report-XXXXXX";
    char output[4096], setting[256];
    int fd, status;
    ssize_t length;

    status = run("child-double-dereg", NULL, output, sizeof(output));
    check(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT &&
              strstr(output, "was deregistered before") != NULL,
          "a second deregistration ends the process");
    status = run("child-double-dereg", "pins=0,unknown", output, sizeof(output));
    check(WIFEXITED(status) && WEXITSTATUS(status) == 2 && strstr(output, "'unknown'") != NULL,
          "a bad AMR_SIM ends the process");
    if (geteuid() == 0)
        check(run("child-memlock", NULL, output, sizeof(output)) == 0,
              "memlock: over the limit ENOMEM, limit 0 EPERM");
    else
        printf("skip  memlock: needs root\n");

    fd = mkstemp(report);
    snprintf(setting, sizeof(setting), "report=%s,linger_ms=50", report);
    status = run("child-exit", setting, output, sizeof(output));
    length = read(fd, output, sizeof(output) - 1);
    output[length > 0 ? length : 0] = '\0';
    check(status == 0 && strstr(output, "running_at_exit=1") != NULL &&
              strstr(output, "live_pds=1") != NULL && strstr(output, "calls_after_exit=0") != NULL,
          "the report tells what was running at exit");
    status = run("child-late", setting, output, sizeof(output));
    length = read(fd, output, sizeof(output) - 1);
    output[length > 0 ? length : 0] = '\0';
    check(status == 0 && strstr(output, " calls_after_exit=1\n") != NULL,
          "and calls that came too late");
    close(fd);
    unlink(report);

    if (old_folder != NULL) {
        setenv("LD_LIBRARY_PATH", old_folder, 1);
        check(run("child-old", NULL, output, sizeof(output)) == 0,
              "the older library has no ibv_reg_dmabuf_mr");
    }
}

static int child(const char *name) {
    if (strcmp(name, "child-double-dereg") == 0)
        return child_double_dereg();
    if (strcmp(name, "child-memlock") == 0)
        return child_memlock();
    if (strcmp(name, "child-exit") == 0)
        return child_exit();
    if (strcmp(name, "child-late") == 0)
        return child_late();
    return sim_present() && dlsym(SIM_RTLD_DEFAULT, "ibv_reg_dmabuf_mr") == NULL ? 0 : 1;
}

int main(int argc, char **argv) {
    program = argv[0];
    if (!sim_present()) {
        fprintf(stderr, "the simulated device is not loaded: set LD_LIBRARY_PATH\n");
        return 1;
    }
    if (argc > 1 && strncmp(argv[1], "child-", 6) == 0)
        return child(argv[1]);
    test_objects();
    test_arguments();
    test_max_mr();
    if (sim_can_pin())
        test_pins();
    else
        printf("skip  pins: this kernel refuses io_uring\n");
    test_rules();
    test_gate();
    test_records();
    test_instant();
    test_rdma("pins=0");
    test_rdma("pins=1");
    test_fork();
    check(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0, "all goes in the end");
    test_processes(argc > 1 ? argv[1] : NULL);
    printf("%d failed\n", failures);
    return failures == 0 ? 0 : 1;
}
