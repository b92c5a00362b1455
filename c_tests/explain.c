/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Texts for people: there is one for everything, and it names the limit and its remedy. F22. */
#include "device.h"

#include <sys/resource.h>

static const uint32_t diags[] = {
    AMR_DIAG_NONE,
    AMR_DIAG_MEMLOCK,
    AMR_DIAG_MAX_MR,
    AMR_DIAG_MAX_MR_SIZE,
    AMR_DIAG_MAX_MAP_COUNT,
    AMR_DIAG_RANGE,
    AMR_DIAG_UNSUPPORTED,
    AMR_DIAG_HOLE,
    AMR_DIAG_PROTECTION,
    AMR_DIAG_UNPINNABLE,
    AMR_DIAG_HUGEPAGE,
    AMR_DIAG_PERMISSION,
    AMR_DIAG_DEVICE_GONE,
    13,
    UINT32_MAX,
};

static char whole[4096];

/* Whether the promises of snprintf() hold for a buffer of that size. */
static int is_cut_well(const struct amr_wc *wc, size_t length, size_t size) {
    char part[sizeof(whole) + 8];

    memset(part, '#', sizeof(part));
    if (amr_explain(wc, part, size) != (int)length || part[size] != '#')
        return 0;
    if (size == 0)
        return 1;
    return memchr(part, '\0', size) != NULL &&
           strlen(part) == (size <= length ? size - 1 : length) &&
           strncmp(part, whole, size - 1) == 0;
}

/* Leaves the text in `whole`. */
static void explain(const struct amr_wc *wc) {
    char again[sizeof(whole)];
    int cut_well;

    do {
        int length = amr_explain(wc, whole, sizeof(whole));
        size_t step = (size_t)length / 3;

        CHECK(length > 0 && length < (int)sizeof(whole));
        CHECK_EQ(strlen(whole), length);
        CHECK(strchr(whole, '\n') == NULL);
        cut_well = amr_explain(wc, NULL, 0) == length;
        for (size_t size = 0; size <= (size_t)length + 2; size += size < 3 ? 1 : step)
            cut_well = cut_well && is_cut_well(wc, (size_t)length, size);
        for (size_t size = (size_t)length; size <= (size_t)length + 2; size++)
            cut_well = cut_well && is_cut_well(wc, (size_t)length, size);
        /* Unless a number in it, like that of mappings, changed meanwhile. */
        CHECK(amr_explain(wc, again, sizeof(again)) > 0);
    } while (strcmp(whole, again) != 0);
    if (!cut_well)
        FAIL("\"%s\" is not cut as snprintf() would", whole);
}

static void expect_words(const struct amr_wc *wc, const char *const *words) {
    explain(wc);
    for (; *words != NULL; words++)
        if (strstr(whole, *words) == NULL)
            FAIL("\"%s\" does not say \"%s\"", whole, *words);
}

#define EXPECT_WORDS(wc, ...) expect_words(wc, (const char *const[]){__VA_ARGS__, NULL})

static void everything_has_a_text(void) {
    static const uint32_t opcodes[] = {AMR_OP_REG_MR, AMR_OP_DEREG_MR, 0, UINT32_MAX};

    for (size_t d = 0; d < ARRAY_SIZE(diags); d++)
        for (size_t o = 0; o < ARRAY_SIZE(opcodes); o++)
            for (int status = -1; status <= 134; status++)
                explain(&(struct amr_wc){.opcode = opcodes[o],
                                         .status = status,
                                         .diag = diags[d],
                                         .diag_arg = 12345678});
}

static void memlock(void) {
    struct amr_wc wc = {
        .opcode = AMR_OP_REG_MR, .status = ENOMEM, .diag = AMR_DIAG_MEMLOCK, .diag_arg = 987654321};
    struct rlimit limit, before;

    CHECK_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    /* The limits of the moment of asking, not of the failure. */
    limit.rlim_cur = 1234567;
    limit.rlim_max = before.rlim_max;
    if (before.rlim_max >= 7654321)
        limit.rlim_max = 7654321;
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    EXPECT_WORDS(&wc, "987654321", "1234567", "RLIMIT_MEMLOCK", "ulimit -l", "container");
    if (before.rlim_max >= 7654321)
        EXPECT_WORDS(&wc, "7654321");
    limit.rlim_cur = 2 * 1234567;
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    EXPECT_WORDS(&wc, "2469134");
}

static void causes(void) {
    struct amr_wc wc = {.opcode = AMR_OP_REG_MR, .status = ENOMEM, .diag_arg = 4242};

    wc.diag = AMR_DIAG_MAX_MR;
    EXPECT_WORDS(&wc, "registration", "4242", "regions");
    wc.diag = AMR_DIAG_MAX_MAP_COUNT;
    EXPECT_WORDS(&wc, "registration", "4242", "vm.max_map_count");
    wc.status = EINVAL;
    wc.diag = AMR_DIAG_MAX_MR_SIZE;
    EXPECT_WORDS(&wc, "registration", "4242", "bytes");
    wc.status = EFAULT;
    wc.diag = AMR_DIAG_RANGE;
    /* F22: memory of a GPU looks like this. */
    EXPECT_WORDS(&wc, "registration", "4242", "mapped", "dma-buf");
    wc.diag = AMR_DIAG_HOLE;
    EXPECT_WORDS(&wc, "registration", "0x1092", "mapped", "dma-buf");
    wc.diag = AMR_DIAG_PROTECTION;
    EXPECT_WORDS(&wc, "registration", "0x1092", "writing", "mprotect");
    wc.diag = AMR_DIAG_UNPINNABLE;
    EXPECT_WORDS(&wc, "registration", "0x1092", "device", "file", "dma-buf");
    wc.status = EINVAL;
    wc.diag = AMR_DIAG_HUGEPAGE;
    EXPECT_WORDS(&wc, "registration", "4242", "huge page", "fork", "RDMAV_HUGEPAGES_SAFE");
    wc.status = EACCES;
    wc.diag = AMR_DIAG_PERMISSION;
    EXPECT_WORDS(&wc, "registration", "permission", "/dev/infiniband");
    wc.status = EIO;
    wc.diag = AMR_DIAG_DEVICE_GONE;
    EXPECT_WORDS(&wc, "registration", "device", "open it again");
    wc.status = EOPNOTSUPP;
    wc.diag = AMR_DIAG_UNSUPPORTED;
    EXPECT_WORDS(&wc, "registration", "0x1092", "support");
    wc.status = ENXIO;
    wc.diag = AMR_DIAG_NONE;
    EXPECT_WORDS(&wc, "registration", "6");
    wc.opcode = AMR_OP_DEREG_MR;
    wc.status = EBUSY;
    EXPECT_WORDS(&wc, "deregistration", "alive");
    wc.status = ECANCELED;
    EXPECT_WORDS(&wc, "deregistration", "cancel");
    wc.status = 0;
    EXPECT_WORDS(&wc, "deregistration", "succe");
}

static void status_texts(void) {
    static const int own[] = {0,       EPERM,     ENOENT,   EIO,       E2BIG,     EAGAIN,
                              ENOMEM,  EFAULT,    EBUSY,    EINVAL,    EMFILE,    ENFILE,
                              EDEADLK, ESHUTDOWN, EALREADY, ETIMEDOUT, ECANCELED, EOPNOTSUPP};

    for (int status = 0; status <= 133; status++) {
        const char *text = amr_status_str(status);

        CHECK(text != NULL && text[0] != '\0');
        CHECK(amr_status_str(status) == text);
    }
    /* All that the library itself returns. */
    for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
        CHECK(strcmp(amr_status_str(own[i]), "unknown error") != 0);
        for (size_t j = 0; j < i; j++)
            if (!(own[i] == ENFILE || own[j] == ENFILE || own[i] == EMFILE || own[j] == EMFILE))
                CHECK(strcmp(amr_status_str(own[i]), amr_status_str(own[j])) != 0);
    }
    CHECK_STR(amr_status_str(-1), "unknown error");
    CHECK_STR(amr_status_str(134), "unknown error");
    CHECK_STR(amr_status_str(99999), "unknown error");
    CHECK_STR(amr_status_str(-2147483647 - 1), "unknown error");
}

int main(void) {
    status_texts();
    everything_has_a_text();
    causes();
    memlock();
    return 0;
}
