/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Huge pages where they are asked for, in the aligned inside of the range, and nowhere else. */
#include "residency.h"

#define HUGE (2 * MIB)

static struct device device;

/* KiB of huge pages in the mapping that holds the address. */
static long huge_kib(const char *addr) {
    FILE *smaps = fopen("/proc/self/smaps", "re");
    char line[512];
    int inside = 0;
    long kib = -1;

    CHECK(smaps != NULL);
    while (kib < 0 && fgets(line, sizeof(line), smaps) != NULL) {
        unsigned long start, end;

        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start <= (unsigned long)addr && (unsigned long)addr < end;
        else if (inside)
            (void)sscanf(line, "AnonHugePages: %ld", &kib);
    }
    fclose(smaps);
    CHECK(kib >= 0);
    return kib;
}

/* Whether the kernel's setting is this one: always, madvise or never. */
static int huge_pages_are_given(const char *when) {
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    char line[64] = "", chosen[16];

    if (file == NULL)
        return strcmp(when, "never") == 0;
    CHECK(fgets(line, sizeof(line), file) != NULL);
    fclose(file);
    snprintf(chosen, sizeof(chosen), "[%s]", when);
    return strstr(line, chosen) != NULL;
}

/* 8 MiB, half a huge page off, so that three are inside. */
static void expect(struct amr_cq *cq, uint32_t flags, long huge_pages) {
    char *pages = map_pages(12 * MIB);
    char *aligned = (char *)(((uintptr_t)pages + HUGE - 1) / HUGE * HUGE);
    char *start = aligned + HUGE / 2;
    struct amr_wr wr = reg_wr(1, device.pd, start, 8 * MIB, ACCESS);
    struct amr_wc wc;

    wr.flags = flags;
    post(cq, wr);
    wc = read_wc(cq);
    CHECK_EQ(wc.status, 0);
    CHECK_EQ(huge_kib(aligned + HUGE), huge_pages * 2048);
    for (size_t i = 0; i < 8 * MIB; i += PAGE)
        CHECK_EQ(start[i], 0);
    CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    CHECK_EQ(munmap(pages, 12 * MIB), 0);
}

static void pages_of_hugetlb(struct amr_cq *cq) {
    char *pages = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    struct amr_wr wr;
    struct amr_wc wc;

    if (pages == MAP_FAILED)
        return; /* none is set aside here */
    wr = reg_wr(1, device.pd, pages, 2 * HUGE, ACCESS);
    wr.flags = AMR_WR_HUGEPAGE;
    post(cq, wr);
    wc = read_wc(cq);
    CHECK_EQ(wc.status, 0);
    CHECK_EQ(ibv_dereg_mr(wc.mr), 0);
    CHECK_EQ(munmap(pages, 2 * HUGE), 0);
}

int main(void) {
    struct amr_engine_attr attr;
    struct amr_engine *engine;
    struct amr_cq *cq;

    if (huge_pages_are_given("never"))
        skip("there are no huge pages here");
    device = open_pinning_device();
    cq = new_cq(NULL, 1);
    if (huge_pages_are_given("madvise"))
        expect(cq, 0, 0);
    expect(cq, AMR_WR_HUGEPAGE, 3);
    expect(cq, AMR_WR_HUGEPAGE | AMR_WR_NO_PREFAULT, 3);
    pages_of_hugetlb(cq);
    CHECK_EQ(amr_destroy_cq(cq), 0);

    memset(&attr, 0, sizeof(attr));
    attr.size = sizeof(attr);
    attr.flags = AMR_ENGINE_HUGEPAGE;
    engine = amr_create_engine(&attr);
    CHECK(engine != NULL);
    cq = new_cq(engine, 1);
    expect(cq, 0, 3);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    close_device(device);
    return 0;
}
