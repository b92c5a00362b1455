/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* AMR_PREFAULT=0 leaves the faulting in to the verbs call; CTest sets it. */
#include "residency.h"

int main(void) {
    struct device device = open_sim();
    struct amr_cq *cq = new_cq(NULL, 1);
    char *pages = map_pages(8 * MIB);

    hold_registration(cq, reg_wr(1, device.pd, pages, 8 * MIB, ACCESS));
    CHECK_EQ(resident_pages(pages, 8 * MIB), 0);
    CHECK_EQ(release_registration(cq).populate_ns, 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
