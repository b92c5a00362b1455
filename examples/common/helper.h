/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the examples share: a PD on the wanted device, and the clock. */
#ifndef HELPER_H
#define HELPER_H

#include <err.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>
#include <time.h>

/* A PD on the device of that name; without a name on the first device. */
static inline struct ibv_pd *open_pd(const char *name) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (!list)
        err(1, "cannot list the RDMA devices");

    struct ibv_device **device = list;
    while (*device && name && strcmp(ibv_get_device_name(*device), name) != 0)
        device++;
    if (!*device)
        errx(1, "there is no RDMA device%s%s", name ? " named " : "", name ? name : "");

    struct ibv_context *context = ibv_open_device(*device);
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
    if (!pd)
        err(1, "cannot open the RDMA device %s", ibv_get_device_name(*device));
    ibv_free_device_list(list);
    return pd;
}

/* Closes the device, too. Fails if a region of the PD is left. */
static inline void close_pd(struct ibv_pd *pd) {
    struct ibv_context *context = pd->context;
    int error = ibv_dealloc_pd(pd);
    if (error)
        errx(1, "ibv_dealloc_pd: %s", strerror(error));
    if (ibv_close_device(context))
        err(1, "ibv_close_device");
}

static inline double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

#endif /* HELPER_H */
