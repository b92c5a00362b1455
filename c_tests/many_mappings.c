/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Where libibverbs looks through all mappings of the process for each registration (huge pages and
 * fork support), and there are 50 000 of them: that is the workers' business. When all has been
 * submitted, most of it is still to be done. F46.
 */
#include "fork_support.h"

enum { MAPPINGS = 50000, REQUESTS = 16 };

int main(void) {
    const char *safe = getenv("RDMAV_HUGEPAGES_SAFE");
    struct amr_wr wrs[REQUESTS];
    struct amr_wc wcs[REQUESTS];
    struct amr_engine *engine;
    struct device device;
    struct amr_cq *cq;
    size_t posted;
    char *pages;
    int done;

    CHECK(safe != NULL && strcmp(safe, "1") == 0);
    begin_fork_support();
    device = open_device();
    engine = new_engine(1, REQUESTS);
    cq = new_cq(engine, REQUESTS);
    pages = map_pages(MAPPINGS * PAGE);
    for (size_t i = 0; i < MAPPINGS; i += 2)
        CHECK_EQ(mprotect(pages + i * PAGE, PAGE, PROT_READ), 0);
    for (uint64_t i = 0; i < REQUESTS; i++)
        wrs[i] = reg_wr(i, device.pd, pages + (2 * i + 1) * PAGE, PAGE, ACCESS);

    CHECK_EQ(amr_post(cq, wrs, REQUESTS, &posted), 0);
    done = amr_poll_cq(cq, REQUESTS, wcs);
    CHECK_EQ(posted, REQUESTS);
    printf("%d of %d were done when all had been submitted\n", done, REQUESTS);
    CHECK(done < REQUESTS);
    read_wcs(cq, wcs + done, REQUESTS - done);
    for (int i = 0; i < REQUESTS; i++) {
        CHECK_EQ(wcs[i].status, 0);
        post(cq, dereg_wr(wcs[i].wr_id, wcs[i].mr));
    }
    read_wcs(cq, wcs, REQUESTS);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
