/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Structures that carry their size: a program may have been built with a header that is older or
 * newer than the library.
 */
#include "device.h"

/* A struct of the future. */
#define WITH_TAIL(type)                                                                            \
    struct {                                                                                       \
        type known;                                                                                \
        unsigned char tail[40];                                                                    \
    }

static void expect_engine(const void *attr, int error) {
    struct amr_engine *engine;

    errno = 0;
    engine = amr_create_engine(attr);
    if (error != 0) {
        CHECK(engine == NULL);
        CHECK_EQ(errno, error);
        return;
    }
    CHECK(engine != NULL);
    CHECK_EQ(stats_of(engine).workers, 3);
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

static void engine_attr(void) {
    WITH_TAIL(struct amr_engine_attr) larger;
    struct amr_engine_attr attr = {.workers = 3};

    /* Fields beyond the size are not looked at. */
    attr.size = offsetof(struct amr_engine_attr, cpus);
    attr.cpus = (const char *)1;
    expect_engine(&attr, 0);
    attr.queue_depth = UINT32_MAX;
    expect_engine(&attr, EINVAL);
    attr.queue_depth = 8;
    expect_engine(&attr, 0);

    /* No struct ends within a word, so none of its fields is cut in two. */
    for (size_t size = 0; size < sizeof(attr); size++) {
        attr.size = size;
        if (size == 0 || size % sizeof(size_t) != 0)
            expect_engine(&attr, EINVAL);
    }
    /* A size that was not set is not believed, whatever it happens to be. */
    attr.size = 4097;
    expect_engine(&attr, E2BIG);
    attr.size = SIZE_MAX;
    expect_engine(&attr, E2BIG);

    memset(&larger, 0, sizeof(larger));
    larger.known.size = sizeof(larger);
    larger.known.workers = 3;
    expect_engine(&larger, 0);
    for (size_t i = 0; i < sizeof(larger.tail); i++) {
        larger.tail[i] = 1;
        expect_engine(&larger, E2BIG);
        larger.tail[i] = 0;
    }
    /* A tail beyond the size is none. */
    larger.known.size = sizeof(larger.known);
    larger.tail[0] = 1;
    expect_engine(&larger, 0);
}

/* Of a smaller struct only its bytes are written, and of a larger one all are. */
static void check_filled(int (*query)(void *), size_t whole_size) {
    unsigned char *buffer = malloc(whole_size + 64);
    unsigned char *before = malloc(whole_size);
    unsigned char *after = malloc(whole_size);

    CHECK(buffer != NULL && before != NULL && after != NULL);
    for (size_t size = 0; size <= whole_size + 40; size++) {
        int status, is_valid;

        /* Again if a number in it, like that of mappings, changed meanwhile. */
        do {
            memset(buffer, 0xa5, whole_size + 64);
            memcpy(buffer, &size, sizeof(size));
            memcpy(before, &whole_size, sizeof(whole_size));
            memcpy(after, &whole_size, sizeof(whole_size));
            CHECK_EQ(query(before), 0);
            status = query(buffer);
            CHECK_EQ(query(after), 0);
        } while (memcmp(before, after, whole_size) != 0);

        is_valid = size != 0 && size % sizeof(size_t) == 0;
        CHECK_EQ(status, is_valid ? 0 : EINVAL);
        CHECK(memcmp(buffer, &size, sizeof(size)) == 0);
        for (size_t i = sizeof(size_t); i < whole_size + 64; i++) {
            unsigned char expected = 0xa5;

            if (is_valid && i < size)
                expected = i < whole_size ? before[i] : 0;
            if (buffer[i] != expected)
                FAIL("size %zu, byte %zu: %#x, expected %#x", size, i, buffer[i], expected);
        }
    }
    free(buffer);
    free(before);
    free(after);
}

static struct amr_engine *engine;

static int query_stats(void *stats) {
    return amr_query_stats(engine, stats);
}

static int query_limits(void *limits) {
    return amr_query_limits(NULL, limits);
}

static void sizes_not_set(void) {
    struct amr_stats stats = {.size = 4097};
    struct amr_limits limits = {.size = SIZE_MAX};

    CHECK_EQ(query_stats(&stats), E2BIG);
    CHECK_EQ(query_limits(&limits), E2BIG);
    CHECK_EQ(stats.workers, 0);
    CHECK_EQ(limits.page_size, 0);
}

int main(void) {
    engine_attr();
    engine = new_engine(3, 8);
    check_filled(query_stats, sizeof(struct amr_stats));
    sizes_not_set();
    CHECK_EQ(amr_destroy_engine(engine), 0);
    check_filled(query_limits, sizeof(struct amr_limits));
    return 0;
}
