/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A process that has used up its mappings still learns why its registration failed. F26. */
#include "device.h"

static struct amr_limits limits(void) {
    struct amr_limits limits = {.size = sizeof(limits)};

    CHECK_EQ(amr_query_limits(NULL, &limits), 0);
    return limits;
}

/* Every second page gets another protection, until no mapping can be split any more. */
static void use_up_mappings(char *pages, size_t count) {
    size_t i = 0;

    while (i + 1 < count && mprotect(pages + i * PAGE, PAGE, PROT_READ) == 0)
        i += 2;
    CHECK(i + 1 < count);
}

int main(void) {
    struct amr_limits before = limits(), at_the_limit;
    size_t count = 2 * (size_t)before.max_map_count;
    /* The second one is that of fork support (madvise(2)). */
    static const int errors[] = {ENOMEM, EAGAIN};
    char *pages, texts[ARRAY_SIZE(errors)][1024];
    struct amr_wc wcs[ARRAY_SIZE(errors)];
    struct device device;
    struct amr_cq *cq;
    void *buffer;

    if (SANITIZED)
        skip("a sanitizer itself cannot do without more mappings");
    if (before.max_map_count > 1000000)
        skip("vm.max_map_count is so high that this would take long");
    device = open_sim();
    buffer = map_pages(PAGE);
    cq = new_cq(NULL, 1);
    pages = mmap(NULL, count * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(pages != MAP_FAILED);
    CHECK_EQ(sim_configure("fail_nth=1:ENOMEM,fail_nth=2:EAGAIN"), 0);
    use_up_mappings(pages, count);
    at_the_limit = limits();

    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        post_reg(cq, 1, device.pd, buffer, PAGE);
        wcs[i] = read_wc(cq);
        CHECK(amr_explain(&wcs[i], texts[i], sizeof(texts[i])) < (int)sizeof(texts[i]));
    }
    CHECK_EQ(munmap(pages, count * PAGE), 0);

    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        CHECK_EQ(wcs[i].status, errors[i]);
        CHECK_EQ(wcs[i].diag, AMR_DIAG_MAX_MAP_COUNT);
        CHECK_EQ(wcs[i].diag_arg, before.max_map_count);
        CHECK(strstr(texts[i], "vm.max_map_count") != NULL);
    }
    /* No further attempts. */
    CHECK_EQ(sim_counts().reg_calls, ARRAY_SIZE(errors));
    CHECK(at_the_limit.map_count > before.map_count + 1000);
    CHECK(at_the_limit.map_count <= before.max_map_count + 1);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return 0;
}
