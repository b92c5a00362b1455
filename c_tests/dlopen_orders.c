/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program that knows neither libamr nor libibverbs until it opens them: in either order, closed
 * in either order, with work under way or none, by a thread that ends before or after; then it
 * exits, or forks and uses them in the child. Each combination in a process of its own. F55.
 */
#include "check.h"
#include "process.h"

#include <amr/amr.h>
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>

enum { VERBS_FIRST = 1, CLOSE_VERBS_FIRST = 2, BUSY = 4, THREAD_OUTLIVES = 8, FORK = 16, ALL = 32 };

static const char *library;
static char buffer[4096];
static sem_t done, go_on;

static void *open_library(const char *name) {
    void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);

    if (handle == NULL)
        FAIL("dlopen: %s", dlerror());
    return handle;
}

#define LOOK_UP(function, handle, name)                                                            \
    do {                                                                                           \
        void *symbol_ = dlsym(handle, name);                                                       \
        CHECK(symbol_ != NULL);                                                                    \
        memcpy(&(function), &symbol_, sizeof(function));                                           \
    } while (0)

struct libraries {
    void *amr, *verbs;
    int busy;
};

static void callback(struct ibv_mr *mr, int status, void *ctx) {
    CHECK_EQ(status, 0);
    CHECK(mr != NULL);
    __atomic_add_fetch((int *)ctx, 1, __ATOMIC_RELEASE);
}

static int heard;

static void use(const struct libraries *libraries) {
    struct ibv_device **(*get_device_list)(int *);
    struct ibv_context *(*open_device)(struct ibv_device *);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *);
    int (*register_async)(struct ibv_pd *, void *, size_t, int, amr_callback, void *);
    int (*drain)(struct amr_engine *, struct ibv_pd *, int);
    int (*configure)(const char *);
    struct ibv_device **list;
    struct ibv_pd *pd;

    LOOK_UP(configure, libraries->verbs, "sim_configure");
    LOOK_UP(get_device_list, libraries->verbs, "ibv_get_device_list");
    LOOK_UP(open_device, libraries->verbs, "ibv_open_device");
    LOOK_UP(alloc_pd, libraries->verbs, "ibv_alloc_pd");
    LOOK_UP(register_async, libraries->amr, "amr_register_async");
    LOOK_UP(drain, libraries->amr, "amr_drain");
    CHECK_EQ(configure(libraries->busy ? "pins=0,reg_delay_us=20000" : "pins=0"), 0);
    list = get_device_list(NULL);
    CHECK(list != NULL && list[0] != NULL);
    pd = alloc_pd(open_device(list[0]));
    CHECK(pd != NULL);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(
            register_async(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE, callback, &heard),
            0);
    if (!libraries->busy) {
        CHECK_EQ(drain(NULL, NULL, -1), 0);
        CHECK_EQ(heard, 8);
    }
    heard = 0;
}

static void *user(void *arg) {
    use((const struct libraries *)arg);
    sem_post(&done);
    sem_wait(&go_on);
    return NULL;
}

static void close_both(const struct libraries *libraries, int how) {
    CHECK_EQ(dlclose(how & CLOSE_VERBS_FIRST ? libraries->verbs : libraries->amr), 0);
    CHECK_EQ(dlclose(how & CLOSE_VERBS_FIRST ? libraries->amr : libraries->verbs), 0);
}

__attribute__((noreturn)) static void one_order(int how) {
    struct libraries libraries;
    pthread_t thread;

    alarm(60);
    libraries.busy = (how & BUSY) != 0;
    libraries.verbs = how & VERBS_FIRST ? open_library("libibverbs.so.1") : NULL;
    libraries.amr = open_library(library);
    if (libraries.verbs == NULL)
        libraries.verbs = open_library("libibverbs.so.1");
    CHECK_EQ(pthread_create(&thread, NULL, user, &libraries), 0);
    sem_wait(&done);
    if (how & THREAD_OUTLIVES) {
        close_both(&libraries, how);
        sem_post(&go_on);
        CHECK_EQ(pthread_join(thread, NULL), 0);
    } else {
        sem_post(&go_on);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        close_both(&libraries, how);
    }
    if (how & FORK) {
        pid_t child = fork();

        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            libraries.verbs = open_library("libibverbs.so.1");
            libraries.amr = open_library(library);
            heard = 0;
            libraries.busy = 0;
            use(&libraries);
            close_both(&libraries, how);
            exit_child(0);
        }
        check_child(child);
    }
    exit(7);
}

int main(int argc, char **argv) {
    if (argc != 2)
        skip("the name of the library is missing");
    library = argv[1];
    CHECK(dlsym(RTLD_DEFAULT, "amr_version") == NULL);
    CHECK(dlsym(RTLD_DEFAULT, "ibv_reg_mr") == NULL);
    CHECK_EQ(sem_init(&done, 0, 0), 0);
    CHECK_EQ(sem_init(&go_on, 0, 0), 0);
    for (int how = 0; how < ALL; how++) {
        pid_t child = fork();
        int status;

        CHECK(child >= 0);
        if (child == 0)
            one_order(how);
        status = wait_child(child);
        if (status != 7 << 8)
            FAIL("order %#x: wait status %#x", (unsigned)how, (unsigned)status);
    }
    return 0;
}
