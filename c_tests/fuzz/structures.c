/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A target for libFuzzer: every structure that a caller fills, with any content and any size that
 * it says of itself. Only pointers are what they have to be: NULL, or of a live object. Each
 * structure lies in a block of its own, so that AddressSanitizer sees one byte read or written too
 * many.
 */
#include "../device.h"

#include <limits.h>

/* What says that it is larger is a mistake to the library, which reads no more of it. */
enum { LARGEST = 4096, MOST_REQUESTS = 8 };

static struct device device;
static struct amr_engine *engine;
static struct amr_cq *cq;
static char *buffer;

/* The bytes that are left of an input. */
struct input {
    const uint8_t *bytes;
    size_t length;
};

/* What the input lacks is zero. */
static void take(struct input *input, void *to, size_t size) {
    size_t length = size < input->length ? size : input->length;

    memset(to, 0, size);
    if (length > 0)
        memcpy(to, input->bytes, length);
    input->bytes += length;
    input->length -= length;
}

static uint8_t take_byte(struct input *input) {
    uint8_t byte;

    take(input, &byte, 1);
    return byte;
}

/* A structure that begins with its size: as large as it says, if anybody is to believe that. */
static void *take_sized(struct input *input) {
    size_t size = 0;
    void *block;

    take(input, &size, take_byte(input) % 2 ? 1 : sizeof(size));
    block = calloc(1, size >= sizeof(size) && size <= LARGEST ? size : sizeof(size));
    CHECK(block != NULL);
    if (size > sizeof(size) && size <= LARGEST)
        take(input, (char *)block + sizeof(size), size - sizeof(size));
    memcpy(block, &size, sizeof(size));
    return block;
}

static void engine_attr(struct input *input) {
    struct amr_engine_attr *attr = take_sized(input);
    char cpus[64];

    take(input, cpus, sizeof(cpus) - 1);
    cpus[sizeof(cpus) - 1] = '\0';
    /* The first version ended with the CPUs. */
    if (attr->size >= offsetof(struct amr_engine_attr, cpus) + sizeof(attr->cpus) &&
        attr->size <= LARGEST) {
        attr->cpus = attr->cpus != NULL ? cpus : NULL;
        /* Many threads and large queues take long, and are tried elsewhere. */
        if (attr->workers <= AMR_MAX_WORKERS)
            attr->workers = attr->workers % 2;
        if (attr->queue_depth <= AMR_MAX_QUEUE_DEPTH)
            attr->queue_depth %= 256;
    }
    struct amr_engine *made = amr_create_engine(attr);

    if (made != NULL)
        CHECK_EQ(amr_destroy_engine(made), 0);
    else
        CHECK(errno == EINVAL || errno == E2BIG);
    free(attr);
}

/* The completions of a post, whichever way they come. */
static struct {
    struct amr_wc wcs[MOST_REQUESTS];
    size_t count; /* atomic */
    sem_t arrived;
} heard;

static void hear(const struct amr_wc *wc) {
    heard.wcs[__atomic_fetch_add(&heard.count, 1, __ATOMIC_RELAXED)] = *wc;
    sem_post(&heard.arrived);
}

static int post_and_hear(const struct amr_wr *wrs, size_t count, int by_callback, size_t *posted) {
    int status;

    heard.count = 0;
    if (!by_callback) {
        status = amr_post(cq, wrs, count, posted);
        CHECK(*posted <= count);
        read_wcs(cq, heard.wcs, (int)*posted);
        check_empty(cq);
        return status;
    }
    status = amr_post_callback(engine, wrs, count, hear, posted);
    CHECK(*posted <= count);
    for (size_t i = 0; i < *posted; i++)
        while (sem_wait(&heard.arrived) != 0)
            CHECK_EQ(errno, EINTR);
    return status;
}

/* What the device says, but for what is tried again, which takes long. */
static void fail_with(int error) {
    char rule[64];

    if (error == 0 || error > 133 || error == EAGAIN || error == EINTR)
        return;
    snprintf(rule, sizeof(rule), "fail_after=0:%d", error);
    CHECK_EQ(sim_configure(rule), 0);
}

static void do_not_fail(void) {
    sim_reset();
    CHECK_EQ(sim_configure("pins=0"), 0);
}

/*
 * Any bytes, but for pointers: a region is NULL or one that is alive. (One that is not the caller's
 * cannot be told from one that is.)
 */
static void work_requests(struct input *input) {
    size_t count = take_byte(input) % MOST_REQUESTS, posted = 99;
    struct amr_wr *wrs = calloc(count ? count : 1, sizeof(*wrs));
    struct ibv_mr *mr = ibv_reg_mr(device.pd, buffer, PAGE, ACCESS);
    int status, by_callback, ended = 0;

    CHECK(wrs != NULL && mr != NULL);
    for (size_t i = 0; i < count; i++) {
        take(input, &wrs[i], sizeof(wrs[i]));
        wrs[i].opcode %= 8;
        if (wrs[i].opcode == AMR_OP_DEREG_MR)
            wrs[i].op.dereg_mr.mr = wrs[i].op.dereg_mr.mr != NULL ? mr : NULL;
        else if (wrs[i].op.reg_mr.pd != NULL)
            wrs[i].op.reg_mr.pd = device.pd;
        if (wrs[i].opcode == AMR_OP_DEREG_MR)
            continue;
        if (take_byte(input) % 2) {
            wrs[i].op.reg_mr.addr = buffer + take_byte(input);
            wrs[i].op.reg_mr.length %= 2 * PAGE;
        } else {
            /* AddressSanitizer's shadow is terabytes of memory that can be faulted in. */
            wrs[i].flags |= AMR_WR_NO_PREFAULT;
        }
    }
    by_callback = take_byte(input) % 2;
    fail_with(take_byte(input));
    status = post_and_hear(wrs, count, by_callback, &posted);
    do_not_fail();
    CHECK((status == 0) == (posted == count));
    CHECK(status == 0 || status == EINVAL || status == EALREADY);
    for (size_t i = 0; i < posted; i++) {
        struct amr_wc *wc = &heard.wcs[i];
        char text[600];

        CHECK(amr_explain(wc, text, sizeof(text)) > 0);
        CHECK((wc->mr != NULL) == (wc->opcode == (wc->status ? AMR_OP_DEREG_MR : AMR_OP_REG_MR)));
        if (wc->opcode == AMR_OP_DEREG_MR)
            ended += wc->status == 0;
        else if (wc->mr != NULL)
            CHECK_EQ(ibv_dereg_mr(wc->mr), 0);
    }
    CHECK(ended <= 1);
    if (!ended)
        CHECK_EQ(ibv_dereg_mr(mr), 0);
    free(wrs);
}

static void explanation(struct input *input) {
    struct amr_wc wc;
    size_t size = take_byte(input);
    char *text = malloc(size ? size : 1);

    CHECK(text != NULL);
    take(input, &wc, sizeof(wc));
    if (take_byte(input) % 2) {
        wc.opcode %= 4;
        wc.diag %= 16;
        wc.status %= 140;
    }
    CHECK(amr_explain(&wc, text, size) > 0);
    CHECK(size == 0 || memchr(text, '\0', size) != NULL);
    CHECK(amr_status_str(wc.status)[0] != '\0');
    free(text);
}

static void results(struct input *input) {
    void *stats = take_sized(input), *limits = take_sized(input);
    int status = amr_query_stats(engine, stats);

    CHECK(status == 0 || status == EINVAL || status == E2BIG);
    status = amr_query_limits(take_byte(input) % 2 ? device.context : NULL, limits);
    CHECK(status == 0 || status == EINVAL || status == E2BIG);
    free(stats);
    free(limits);
}

static void numbers(struct input *input) {
    uint32_t capacity, entries, timeout;
    struct amr_wc wc;
    struct amr_cq *made;
    uint64_t id;

    take(input, &capacity, sizeof(capacity));
    take(input, &entries, sizeof(entries));
    take(input, &timeout, sizeof(timeout));
    take(input, &id, sizeof(id));
    made = amr_create_cq(engine, capacity > AMR_MAX_CQ_CAPACITY ? capacity : capacity % 512);
    if (made != NULL)
        CHECK_EQ(amr_destroy_cq(made), 0);
    CHECK(amr_poll_cq(cq, (int)entries > 0 ? 1 : (int)entries, &wc) <= 0);
    CHECK(amr_wait_cq(cq, 1, &wc, (int)timeout < 0 && timeout != UINT32_MAX ? (int)timeout : 0) <=
          0);
    CHECK_EQ(amr_cancel(cq, id), ENOENT);
    /* A worker may still be about to say that it has done with the request before. */
    CHECK_EQ(amr_drain(engine, device.pd, (int)timeout < -1 ? (int)timeout : -1),
             (int)timeout < -1 ? EINVAL : 0);
}

static void set_up(void) {
    device = open_sim();
    CHECK_EQ(sim_configure("pins=0"), 0);
    buffer = map_pages(4 * PAGE);
    CHECK_EQ(sem_init(&heard.arrived, 0, 0), 0);
    engine = new_engine(1, 16);
    cq = new_cq(engine, 16);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    static void (*const kinds[])(struct input *) = {engine_attr, work_requests, explanation,
                                                    results, numbers};
    struct input input = {bytes, length};

    if (engine == NULL)
        set_up();
    kinds[take_byte(&input) % ARRAY_SIZE(kinds)](&input);
    return 0;
}
