/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program of the days of version 0.1: it uses every function as one did then, with the header of
 * then beside it. Neither is ever changed; install.old_client.0.1 runs it with today's library.
 */
#include <amr/amr.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static char buffer[1 << 16];

struct heard {
    struct ibv_mr *mr;
    int status, calls;
};

static void on_done(struct ibv_mr *mr, int status, void *ctx) {
    struct heard *heard = ctx;

    heard->mr = mr;
    heard->status = status;
    heard->calls++;
}

static void one_call(struct ibv_pd *pd) {
    struct heard reg = {0}, dereg = {0};

    EXPECT(amr_register_async(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE, on_done, &reg) ==
           0);
    EXPECT(amr_drain(NULL, pd, -1) == 0);
    EXPECT(reg.calls == 1 && reg.status == 0 && reg.mr->length == sizeof(buffer));
    EXPECT(amr_deregister_async(reg.mr, on_done, &dereg) == 0);
    EXPECT(amr_drain(amr_default_engine(), NULL, -1) == 0);
    EXPECT(dereg.calls == 1 && dereg.status == 0 && dereg.mr == NULL);
}

static void queue(struct ibv_pd *pd) {
    struct amr_engine_attr attr = {.size = sizeof(attr), .workers = 2, .queue_depth = 64};
    struct amr_stats stats = {.size = sizeof(stats)};
    struct amr_engine *engine = amr_create_engine(&attr);
    struct amr_cq *cq = amr_create_cq(engine, 64);
    struct amr_wr wrs[8];
    struct amr_wc wcs[8];
    struct pollfd fd;
    size_t posted = 0;

    EXPECT(engine != NULL && cq != NULL);
    memset(wrs, 0, sizeof(wrs));
    for (int i = 0; i < 8; i++) {
        wrs[i].wr_id = 100 + (uint64_t)i;
        wrs[i].opcode = AMR_OP_REG_MR;
        wrs[i].op.reg_mr.pd = pd;
        wrs[i].op.reg_mr.addr = buffer + 4096 * i;
        wrs[i].op.reg_mr.length = 4096;
        wrs[i].op.reg_mr.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
        wrs[i].op.reg_mr.iova = (uint64_t)i << 20 | ((uintptr_t)wrs[i].op.reg_mr.addr & 4095);
        wrs[i].flags = AMR_WR_IOVA;
    }
    EXPECT(amr_post(cq, wrs, 8, &posted) == 0 && posted == 8);
    fd = (struct pollfd){.fd = amr_cq_fd(cq), .events = POLLIN};
    EXPECT(poll(&fd, 1, 60000) == 1);
    for (int got = 0; got < 8;) {
        int count = amr_wait_cq(cq, 8 - got, wcs + got, 60000);

        EXPECT(count > 0);
        got += count;
    }
    for (int i = 0; i < 8; i++) {
        EXPECT(wcs[i].status == 0 && wcs[i].opcode == AMR_OP_REG_MR && wcs[i].mr != NULL);
        EXPECT(wcs[i].wr_id >= 100 && wcs[i].wr_id < 108);
        memset(&wrs[i], 0, sizeof(wrs[i]));
        wrs[i].opcode = AMR_OP_DEREG_MR;
        wrs[i].op.dereg_mr.mr = wcs[i].mr;
    }
    EXPECT(amr_cancel(cq, 100) == ENOENT);
    EXPECT(amr_post(cq, wrs, 8, NULL) == 0);
    EXPECT(amr_drain(engine, NULL, -1) == 0);
    EXPECT(amr_poll_cq(cq, 8, wcs) == 8);
    for (int i = 0; i < 8; i++)
        EXPECT(wcs[i].status == 0 && wcs[i].opcode == AMR_OP_DEREG_MR && wcs[i].mr == NULL);
    EXPECT(amr_query_stats(engine, &stats) == 0);
    EXPECT(stats.submitted == 16 && stats.completed == 16 && stats.failed == 0 &&
           stats.workers == 2);
    EXPECT(amr_destroy_engine(engine) == EBUSY);
    EXPECT(amr_destroy_cq(cq) == 0);
    EXPECT(amr_destroy_engine(engine) == 0);
}

static void refusals(struct ibv_context *context, struct ibv_pd *pd) {
    struct amr_limits limits = {.size = sizeof(limits)};
    struct amr_wc wc = {.opcode = AMR_OP_REG_MR, .status = ENOMEM, .diag = AMR_DIAG_MEMLOCK};
    char text[512];

    EXPECT(amr_register_async(pd, NULL, 4096, 0, on_done, NULL) == EINVAL);
    EXPECT(amr_register_async(pd, buffer, 0, 0, on_done, NULL) == EINVAL);
    EXPECT(amr_register_async(pd, buffer, 1, IBV_ACCESS_REMOTE_WRITE, on_done, NULL) == EINVAL);
    EXPECT(amr_query_limits(context, &limits) == 0 && limits.page_size >= 4096);
    EXPECT(amr_explain(&wc, text, sizeof(text)) > 0 && strstr(text, "RLIMIT_MEMLOCK") != NULL);
    EXPECT(strcmp(amr_status_str(0), "success") == 0);
}

int main(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context;
    struct ibv_pd *pd;

    EXPECT(list != NULL && list[0] != NULL);
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    EXPECT(context != NULL);
    pd = ibv_alloc_pd(context);
    EXPECT(pd != NULL);
    one_call(pd);
    queue(pd);
    refusals(context, pd);
    EXPECT(ibv_dealloc_pd(pd) == 0);
    EXPECT(ibv_close_device(context) == 0);
    printf("built with the header of %d.%d, runs with version %s\n", AMR_VERSION_MAJOR,
           AMR_VERSION_MINOR, amr_version());
    return 0;
}
