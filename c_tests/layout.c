/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Structures of arrays keep their size for good, and no structure has a hole. */
#include "check.h"

#include <amr/amr.h>

#define ENDS_AT(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))

#define CHECK_FOLLOWS(type, member, before) CHECK_EQ(offsetof(type, member), ENDS_AT(type, before))

int main(void) {
    CHECK_EQ(sizeof(struct amr_wr), 128);
    CHECK_EQ(offsetof(struct amr_wr, wr_id), 0);
    CHECK_EQ(offsetof(struct amr_wr, opcode), 8);
    CHECK_EQ(offsetof(struct amr_wr, flags), 12);
    CHECK_EQ(offsetof(struct amr_wr, op), 16);
    CHECK_EQ(sizeof(union amr_op), 112);
    CHECK_EQ(offsetof(struct amr_reg_mr, pd), 0);
    CHECK_EQ(offsetof(struct amr_reg_mr, addr), 8);
    CHECK_EQ(offsetof(struct amr_reg_mr, length), 16);
    CHECK_EQ(offsetof(struct amr_reg_mr, iova), 24);
    CHECK_EQ(offsetof(struct amr_reg_mr, access), 32);
    CHECK_EQ(offsetof(struct amr_reg_mr, reserved), 36);
    CHECK_EQ(sizeof(struct amr_reg_mr), 40);
    CHECK_EQ(offsetof(struct amr_dereg_mr, mr), 0);

    CHECK_EQ(sizeof(struct amr_wc), 64);
    CHECK_EQ(offsetof(struct amr_wc, wr_id), 0);
    CHECK_EQ(offsetof(struct amr_wc, opcode), 8);
    CHECK_EQ(offsetof(struct amr_wc, status), 12);
    CHECK_EQ(offsetof(struct amr_wc, diag), 16);
    CHECK_EQ(offsetof(struct amr_wc, mr), 24);
    CHECK_EQ(offsetof(struct amr_wc, queued_ns), 32);
    CHECK_EQ(offsetof(struct amr_wc, busy_ns), 40);
    CHECK_EQ(offsetof(struct amr_wc, diag_arg), 48);
    CHECK_EQ(ENDS_AT(struct amr_wc, populate_ns), 64);

    /* Those that grow begin with their size, and have no padding that a caller cannot set. */
    CHECK_EQ(offsetof(struct amr_engine_attr, size), 0);
    CHECK_FOLLOWS(struct amr_engine_attr, workers, size);
    CHECK_FOLLOWS(struct amr_engine_attr, queue_depth, workers);
    CHECK_FOLLOWS(struct amr_engine_attr, cpus, queue_depth);
    CHECK_FOLLOWS(struct amr_engine_attr, flags, cpus);
    CHECK_FOLLOWS(struct amr_engine_attr, reserved, flags);
    CHECK_EQ(ENDS_AT(struct amr_engine_attr, reserved), sizeof(struct amr_engine_attr));
    CHECK_EQ(offsetof(struct amr_limits, size), 0);
    CHECK_EQ(offsetof(struct amr_limits, cap_ipc_lock), 9 * sizeof(uint64_t));
    CHECK_EQ(ENDS_AT(struct amr_limits, page_size), sizeof(struct amr_limits));
    CHECK_EQ(offsetof(struct amr_stats, size), 0);
    CHECK_EQ(offsetof(struct amr_stats, workers), 12 * sizeof(uint64_t));
    CHECK_EQ(ENDS_AT(struct amr_stats, populate_ns_max), sizeof(struct amr_stats));
    return 0;
}
