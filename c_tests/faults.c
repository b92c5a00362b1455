/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Does what must not be done, for tools that find such things. */
#include "check.h"

#include <amr/amr.h>
#include <limits.h>
#include <pthread.h>

/* Outlives the call, so that no compiler can see through it. */
static struct amr_wr *volatile shared;

static void use_freed_memory(void) {
    shared = calloc(1, sizeof(*shared));
    free(shared);
    printf("%u\n", shared->opcode);
}

static void *write_repeatedly(void *ctx) {
    (void)ctx;
    for (int i = 0; i < 100000; i++)
        shared->opcode = 0;
    return NULL;
}

static void race(void) {
    pthread_t thread;

    shared = calloc(1, sizeof(*shared));
    CHECK_EQ(pthread_create(&thread, NULL, write_repeatedly, NULL), 0);
    write_repeatedly(NULL);
    pthread_join(thread, NULL);
    free(shared);
}

/* The library reads the request, and refuses it because it has no opcode. */
static void use_freed_memory_in_libamr(void) {
    struct amr_cq *cq = amr_create_cq(NULL, 1);

    CHECK(cq != NULL);
    shared = calloc(1, sizeof(*shared));
    free(shared);
    amr_post(cq, shared, 1, NULL);
}

static void race_in_libamr(void) {
    pthread_t thread;
    struct amr_cq *cq = amr_create_cq(NULL, 1);

    CHECK(cq != NULL);
    shared = calloc(1, sizeof(*shared));
    CHECK_EQ(pthread_create(&thread, NULL, write_repeatedly, NULL), 0);
    for (int i = 0; i < 1000; i++)
        amr_post(cq, shared, 1, NULL);
    pthread_join(thread, NULL);
    free(shared);
}

static void overflow(void) {
    volatile int most = INT_MAX;

    printf("%d\n", most + 1);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*commit)(void);
    } faults[] = {
        {"heap", use_freed_memory},
        {"heap_in_libamr", use_freed_memory_in_libamr},
        {"overflow", overflow},
        {"race", race},
        {"race_in_libamr", race_in_libamr},
    };

    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        if (argc == 2 && strcmp(argv[1], faults[i].name) == 0) {
            faults[i].commit();
            return 0;
        }
    }
    FAIL("which fault?");
}
