/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the one-call functions refuse: no callback, no verbs call. F13 F20 F21. */
#include "device.h"

static void never(struct ibv_mr *mr, int status, void *ctx) {
    (void)mr;
    FAIL("callback of a refused request, status %d, ctx %p", status, ctx);
}

int main(void) {
    struct device device = open_sim();
    char *buffer = map_pages(4 * PAGE);
    struct ibv_pd *pd = device.pd;
    const struct {
        const char *what;
        struct ibv_pd *pd;
        void *addr;
        size_t length;
        int flags;
        amr_callback callback;
    } table[] = {
        {"NULL pd", NULL, buffer, PAGE, ACCESS, never},
        {"NULL callback", pd, buffer, PAGE, ACCESS, NULL},
        {"length 0", pd, buffer, 0, ACCESS, never},
        {"length 0, unaligned", pd, buffer + 1, 0, ACCESS, never},
        {"length 0, NULL addr", pd, NULL, 0, ACCESS, never},
        {"NULL addr", pd, NULL, PAGE, ACCESS, never},
        {"NULL addr on demand", pd, NULL, PAGE, ACCESS | IBV_ACCESS_ON_DEMAND, never},
        {"NULL addr, SIZE_MAX", pd, NULL, SIZE_MAX, ACCESS, never},
        {"SIZE_MAX on demand, with addr", pd, buffer, SIZE_MAX, ACCESS | IBV_ACCESS_ON_DEMAND,
         never},
        {"overflow", pd, buffer, SIZE_MAX - (uintptr_t)buffer + 2, ACCESS, never},
        {"remote write alone", pd, buffer, PAGE, IBV_ACCESS_REMOTE_WRITE, never},
        {"remote atomic alone", pd, buffer, PAGE, IBV_ACCESS_REMOTE_ATOMIC, never},
    };
    struct ibv_mr *mr = ibv_reg_mr(pd, buffer, PAGE, ACCESS);
    uint64_t calls;

    CHECK(mr != NULL);
    calls = verbs_calls();
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        int status = amr_register_async(table[i].pd, table[i].addr, table[i].length, table[i].flags,
                                        table[i].callback, NULL);

        if (status != EINVAL)
            FAIL("%s: %d", table[i].what, status);
    }
    CHECK_EQ(amr_deregister_async(NULL, never, NULL), EINVAL);
    CHECK_EQ(amr_deregister_async(mr, NULL, NULL), EINVAL);
    CHECK_EQ(amr_deregister_async(NULL, NULL, NULL), EINVAL);

    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    CHECK_EQ(verbs_calls(), calls);
    CHECK_EQ(stats_of(NULL).submitted, 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    close_device(device);
    return 0;
}
