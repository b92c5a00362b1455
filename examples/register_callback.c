/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* register_callback [DEVICE]: registers memory while the main thread goes on. */
#include <amr/amr.h>
#include <err.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct request {
    struct ibv_mr *mr;
    int status;
    atomic_int done; /* stored last: who sees it set may read the others */
};

/* The library calls this once for each request, on a thread of its own. */
static void on_done(struct ibv_mr *mr, int status, void *ctx) {
    struct request *request = ctx;
    request->mr = mr;
    request->status = status;
    atomic_store(&request->done, 1);
}

static void check(const char *what, int error) {
    if (error)
        errx(1, "%s: %s", what, amr_status_str(error));
}

static struct ibv_context *open_device(const char *name) {
    struct ibv_device **list = ibv_get_device_list(NULL), **device = list;
    while (device && *device && name && strcmp(ibv_get_device_name(*device), name))
        device++;
    struct ibv_context *context = device && *device ? ibv_open_device(*device) : NULL;
    if (!context)
        errx(1, "no RDMA device can be opened");
    ibv_free_device_list(list);
    return context;
}

int main(int argc, char **argv) {
    struct ibv_context *context = open_device(argc > 1 ? argv[1] : NULL);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    size_t size = (size_t)256 << 20;
    void *buffer = malloc(size);
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    struct request reg = {0}, dereg = {0};
    unsigned long work = 0;

    check("prepare", pd && buffer ? 0 : errno);
    check("register", amr_register_async(pd, buffer, size, access, on_done, &reg));
    while (!atomic_load(&reg.done))
        work++; /* the main thread is free for whatever it has to do */
    check("register", reg.status);
    printf("%zu bytes registered (lkey %#x, rkey %#x), while main() counted to %lu\n", size,
           reg.mr->lkey, reg.mr->rkey, work);

    check("deregister", amr_deregister_async(reg.mr, on_done, &dereg));
    check("drain", amr_drain(NULL, pd, -1)); /* nothing is left to do on the PD: it can go */
    check("deregister", dereg.status);
    free(buffer);
    check("close", ibv_dealloc_pd(pd));
    check("close", ibv_close_device(context));
}
