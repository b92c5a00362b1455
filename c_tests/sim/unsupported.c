/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Verbs that the simulated device does not offer. The symbols are there, so that a program that
 * mentions them loads; the calls fail as those of a device without the feature do.
 */
#include "sim_internal.h"

/* The arguments are not looked at: only the shape of the result matters. */
#define RETURNS_NULL(type, name, ...)                                                              \
    SIM_EXPORT type *name(__VA_ARGS__) {                                                           \
        errno = EOPNOTSUPP;                                                                        \
        return NULL;                                                                               \
    }

#define RETURNS_ERROR(name, ...)                                                                   \
    SIM_EXPORT int name(__VA_ARGS__) {                                                             \
        return EOPNOTSUPP;                                                                         \
    }

#define RETURNS_NOTHING(name, ...)                                                                 \
    SIM_EXPORT void name(__VA_ARGS__) {}

#pragma GCC diagnostic ignored "-Wunused-parameter"

RETURNS_NULL(struct ibv_ah, ibv_create_ah, struct ibv_pd *pd, struct ibv_ah_attr *attr)
RETURNS_NULL(struct ibv_ah, ibv_create_ah_from_wc, struct ibv_pd *pd, struct ibv_wc *wc,
             struct ibv_grh *grh, uint8_t port_num)
RETURNS_ERROR(ibv_init_ah_from_wc, struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
              struct ibv_grh *grh, struct ibv_ah_attr *ah_attr)
RETURNS_ERROR(ibv_destroy_ah, struct ibv_ah *ah)
RETURNS_ERROR(ibv_resolve_eth_l2_from_gid, struct ibv_context *context, struct ibv_ah_attr *attr,
              uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)

RETURNS_NULL(struct ibv_srq, ibv_create_srq, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
RETURNS_ERROR(ibv_modify_srq, struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
RETURNS_ERROR(ibv_query_srq, struct ibv_srq *srq, struct ibv_srq_attr *attr)
RETURNS_ERROR(ibv_destroy_srq, struct ibv_srq *srq)

RETURNS_ERROR(ibv_attach_mcast, struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
RETURNS_ERROR(ibv_detach_mcast, struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)

RETURNS_NULL(struct ibv_context, ibv_import_device, int cmd_fd)
RETURNS_NULL(struct ibv_pd, ibv_import_pd, struct ibv_context *context, uint32_t handle)
RETURNS_NULL(struct ibv_mr, ibv_import_mr, struct ibv_pd *pd, uint32_t handle)
RETURNS_NULL(struct ibv_dm, ibv_import_dm, struct ibv_context *context, uint32_t handle)
RETURNS_NOTHING(ibv_unimport_pd, struct ibv_pd *pd)
RETURNS_NOTHING(ibv_unimport_mr, struct ibv_mr *mr)
RETURNS_NOTHING(ibv_unimport_dm, struct ibv_dm *dm)

RETURNS_NULL(struct ibv_qp_ex, ibv_qp_to_qp_ex, struct ibv_qp *qp)
RETURNS_ERROR(ibv_set_ece, struct ibv_qp *qp, struct ibv_ece *ece)
RETURNS_ERROR(ibv_query_ece, struct ibv_qp *qp, struct ibv_ece *ece)

/* Here 0 is an answer: the order of data in memory is not guaranteed. */
SIM_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
                                          uint32_t flags) {
    return 0;
}
