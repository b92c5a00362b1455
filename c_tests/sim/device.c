/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Devices, contexts, ports and protection domains. */
#include "sim_internal.h"

#include <endian.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    GUID_BASE = 0x00a17000, /* in the lower half; the upper half says "locally administered" */
    PKEY = 0xffff,
    GIDS = 1,
    MAX_MR = 1 << 24,
};

static struct sim_device devices[SIM_MAX_DEVICES];

atomic_ullong sim_live_contexts;
atomic_ullong sim_live_pds;
atomic_ullong sim_live_cqs;
atomic_ullong sim_live_qps;

void sim_devices_start(void) {
    for (unsigned i = 0; i < SIM_MAX_DEVICES; i++) {
        struct ibv_device *ibv = &devices[i].ibv;

        devices[i].index = i;
        devices[i].guid = 0x0200000000000000u | (uint64_t)(GUID_BASE + i);
        ibv->node_type = IBV_NODE_CA;
        ibv->transport_type = IBV_TRANSPORT_IB;
        snprintf(ibv->name, sizeof(ibv->name), "sim%u", i);
        snprintf(ibv->dev_name, sizeof(ibv->dev_name), "uverbs%u", i);
        snprintf(ibv->dev_path, sizeof(ibv->dev_path), "/sys/class/infiniband_verbs/uverbs%u", i);
        snprintf(ibv->ibdev_path, sizeof(ibv->ibdev_path), "/sys/class/infiniband/sim%u", i);
    }
}

static struct sim_device *sim_device(struct ibv_device *device) {
    return sim_container_of(device, struct sim_device, ibv);
}

static struct sim_context *sim_context(struct ibv_context *context) {
    return sim_container_of(context, struct sim_context, verbs.context);
}

/* ---- Device list ----------------------------------------------------------------------------- */

SIM_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices) {
    uint64_t count = sim_get(&sim_settings.devices);
    struct ibv_device **list = calloc(count + 1, sizeof(struct ibv_device *));

    if (list == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    for (uint64_t i = 0; i < count; i++)
        list[i] = &devices[i].ibv;
    if (num_devices != NULL)
        *num_devices = (int)count;
    return list;
}

SIM_EXPORT void ibv_free_device_list(struct ibv_device **list) {
    free(list);
}

SIM_EXPORT const char *ibv_get_device_name(struct ibv_device *device) {
    return device->name;
}

SIM_EXPORT int ibv_get_device_index(struct ibv_device *device) {
    return (int)sim_device(device)->index;
}

SIM_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device) {
    return htobe64(sim_device(device)->guid);
}

SIM_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size) {
    (void)dir, (void)file, (void)buf, (void)size;
    errno = ENOENT; /* a simulated device has no sysfs entries */
    return -1;
}

/* ---- Properties ------------------------------------------------------------------------------ */

static void describe_device(const struct sim_device *device, struct ibv_device_attr *attr) {
    uint64_t max_mr = sim_get(&sim_settings.max_mr);

    *attr = (struct ibv_device_attr){
        .fw_ver = "simulated",
        .node_guid = htobe64(device->guid),
        .sys_image_guid = htobe64(device->guid),
        .max_mr_size = sim_get(&sim_settings.max_mr_size),
        .page_size_cap = 0xfffffffffffff000u,
        .max_qp = 1 << 16,
        .max_qp_wr = 1 << 14,
        .device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID,
        .max_sge = SIM_MAX_SGE,
        .max_sge_rd = SIM_MAX_SGE,
        .max_cq = 1 << 16,
        .max_cqe = 1 << 22,
        .max_mr = max_mr != 0 ? (int)max_mr : MAX_MR,
        .max_pd = 1 << 16,
        .max_qp_rd_atom = 16,
        .max_res_rd_atom = 1 << 20,
        .max_qp_init_rd_atom = 16,
        .atomic_cap = IBV_ATOMIC_HCA,
        .max_pkeys = 1,
        .local_ca_ack_delay = 16,
        .phys_port_cnt = 1,
    };
}

SIM_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    if (sim_get(&sim_settings.gone))
        return EIO;
    describe_device(sim_device(context->device), attr);
    return 0;
}

static int query_device_ex(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size) {
    struct ibv_device_attr_ex full;

    if (input != NULL && input->comp_mask != 0)
        return EINVAL;
    memset(&full, 0, sizeof(full));
    describe_device(sim_device(context->device), &full.orig_attr);
    full.device_cap_flags_ex = full.orig_attr.device_cap_flags;
    full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt;
    if (sim_get(&sim_settings.odp)) {
        full.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
        full.odp_caps.per_transport_caps.rc_odp_caps =
            IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
            IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
    }
    memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
    return 0;
}

static int query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr,
                      size_t size) {
    const struct ibv_port_attr full = {
        .state = IBV_PORT_ACTIVE,
        .max_mtu = IBV_MTU_1024,
        .active_mtu = IBV_MTU_1024,
        .gid_tbl_len = GIDS,
        .port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        .max_msg_sz = SIM_MAX_MESSAGE,
        .pkey_tbl_len = 1,
        .max_vl_num = 1,
        .active_width = 2, /* 4 lanes */
        .active_speed = 32,
        .phys_state = 5, /* link up */
        .link_layer = IBV_LINK_LAYER_ETHERNET,
    };

    (void)context;
    if (port_num != 1)
        return EINVAL;
    memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
    return 0;
}

/* For programs built before the structure grew; later ones come through the context. */
SIM_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port_num,
                              struct _compat_ibv_port_attr *attr) {
    return query_port(context, port_num, (struct ibv_port_attr *)(void *)attr,
                      offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* Link-local, from the device and the process; a queue pair is found by its number alone. */
SIM_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
                             union ibv_gid *gid) {
    if (port_num != 1 || index < 0 || index >= GIDS) {
        errno = EINVAL;
        return -1;
    }
    gid->global.subnet_prefix = htobe64(0xfe80000000000000u);
    gid->global.interface_id =
        htobe64(sim_device(context->device)->guid | (uint64_t)getpid() << 32);
    return 0;
}

SIM_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
                                 struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size) {
    struct ibv_gid_entry full = {
        .gid_index = gid_index,
        .port_num = port_num,
        .gid_type = IBV_GID_TYPE_ROCE_V2,
    };

    if (flags != 0 || port_num != 1 || gid_index >= GIDS)
        return EINVAL;
    ibv_query_gid(context, 1, (int)gid_index, &full.gid);
    memcpy(entry, &full, entry_size < sizeof(full) ? entry_size : sizeof(full));
    return 0;
}

SIM_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                                        size_t max_entries, uint32_t flags, size_t entry_size) {
    if (max_entries < GIDS)
        return -EINVAL;
    return _ibv_query_gid_ex(context, 1, 0, entries, flags, entry_size) == 0 ? GIDS : -EINVAL;
}

SIM_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
                                  unsigned int *type) {
    (void)context;
    if (port_num != 1 || index >= GIDS) {
        errno = EINVAL;
        return -1;
    }
    *type = 1; /* RoCE v2, in the numbering that is private to libibverbs */
    return 0;
}

SIM_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index,
                              __be16 *pkey) {
    (void)context;
    if (port_num != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htobe16(PKEY);
    return 0;
}

SIM_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey) {
    (void)context;
    return port_num == 1 && pkey == htobe16(PKEY) ? 0 : -1;
}

/* ---- Contexts -------------------------------------------------------------------------------- */

SIM_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device) {
    struct sim_context *context = calloc(1, sizeof(*context));
    struct ibv_context *ibv;

    if (context == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    ibv = &context->verbs.context;
    ibv->async_fd = eventfd(0, EFD_CLOEXEC); /* nothing asynchronous ever happens */
    if (ibv->async_fd < 0) {
        free(context);
        return NULL;
    }
    context->device = sim_device(device);
    context->verbs.sz = sizeof(context->verbs);
    context->verbs.query_port = query_port;
    context->verbs.query_device_ex = query_device_ex;
    context->verbs.advise_mr = sim_advise_mr;
    ibv->device = device;
    ibv->cmd_fd = -1;
    ibv->num_comp_vectors = 1;
    ibv->abi_compat = __VERBS_ABI_IS_EXTENDED;
    ibv->ops.poll_cq = sim_poll_cq;
    ibv->ops.req_notify_cq = sim_req_notify_cq;
    ibv->ops.post_send = sim_post_send;
    ibv->ops.post_recv = sim_post_recv;
    pthread_mutex_init(&ibv->mutex, NULL);
    atomic_fetch_add(&sim_live_contexts, 1);
    return ibv;
}

SIM_EXPORT int ibv_close_device(struct ibv_context *ibv) {
    struct sim_context *context = sim_context(ibv);

    if (atomic_load(&context->pds) != 0)
        return EBUSY;
    close(ibv->async_fd);
    pthread_mutex_destroy(&ibv->mutex);
    free(context);
    atomic_fetch_sub(&sim_live_contexts, 1);
    return 0;
}

SIM_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
    uint64_t value;

    (void)event;
    return read(context->async_fd, &value, sizeof(value)) < 0 ? -1 : 0;
}

SIM_EXPORT void ibv_ack_async_event(struct ibv_async_event *event) {
    (void)event;
}

/* ---- Protection domains ---------------------------------------------------------------------- */

SIM_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    static atomic_uint handle;
    struct sim_pd *pd = calloc(1, sizeof(*pd));

    if (pd == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    pd->ibv.context = context;
    pd->ibv.handle = atomic_fetch_add(&handle, 1);
    atomic_fetch_add(&sim_context(context)->pds, 1);
    atomic_fetch_add(&sim_live_pds, 1);
    return &pd->ibv;
}

SIM_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd) {
    if (atomic_load(&sim_pd(pd)->qps) != 0 || sim_mr_any_in(pd))
        return EBUSY;
    atomic_fetch_sub(&sim_context(pd->context)->pds, 1);
    atomic_fetch_sub(&sim_live_pds, 1);
    free(sim_pd(pd));
    return 0;
}

/* ---- Fork ------------------------------------------------------------------------------------ */

/* Kernels that copy pinned pages at fork need no help, and the simulated device wants one. */
SIM_EXPORT int ibv_fork_init(void) {
    return 0;
}

SIM_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void) {
    return IBV_FORK_UNNEEDED;
}
