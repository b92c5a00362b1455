/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The library as a plug-in's dependency: to load it starts no thread, to unload it while threads
 * that used it are alive hurts nobody. Not linked with libamr, whose name is the argument. F50 F55.
 */
#include "device.h"
#include "process.h"

#include <pthread.h>
#include <signal.h>

static const char *library;
static struct device device;
static void *buffer;
static sem_t used, closed;

/* A function pointer cannot be cast from void * in ISO C, so its bytes are copied. */
#define LOOK_UP(function, handle, name)                                                            \
    do {                                                                                           \
        void *symbol_ = dlsym(handle, name);                                                       \
        CHECK(symbol_ != NULL);                                                                    \
        memcpy(&(function), &symbol_, sizeof(function));                                           \
    } while (0)

static void *open_library(void) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);

    if (handle == NULL)
        FAIL("dlopen: %s", dlerror());
    return handle;
}

static void use(void *handle) {
    int (*register_async)(struct ibv_pd *, void *, size_t, int, amr_callback, void *);
    int (*deregister_async)(struct ibv_mr *, amr_callback, void *);
    int (*drain)(struct amr_engine *, struct ibv_pd *, int);
    struct outcome outcome;
    struct ibv_mr *mr;

    LOOK_UP(register_async, handle, "amr_register_async");
    LOOK_UP(deregister_async, handle, "amr_deregister_async");
    LOOK_UP(drain, handle, "amr_drain");
    outcome_init(&outcome);
    CHECK_EQ(register_async(device.pd, buffer, PAGE, ACCESS, outcome_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(outcome.status, 0);
    mr = outcome.mr;
    CHECK_EQ(drain(NULL, NULL, -1), 0);
    outcome_end(&outcome);
    outcome_init(&outcome);
    CHECK_EQ(deregister_async(mr, outcome_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(outcome.status, 0);
    CHECK_EQ(drain(NULL, NULL, -1), 0);
    outcome_end(&outcome);
}

/* Ends, with whatever the library keeps for a thread, after the library was closed. */
static void *user(void *arg) {
    use(arg);
    sem_post(&used);
    sem_wait(&closed);
    return NULL;
}

static void engine_of_its_own(void *handle) {
    struct amr_engine *(*create)(const struct amr_engine_attr *);
    int (*destroy)(struct amr_engine *);
    struct amr_engine *engine;

    LOOK_UP(create, handle, "amr_create_engine");
    LOOK_UP(destroy, handle, "amr_destroy_engine");
    engine = create(NULL);
    CHECK(engine != NULL);
    CHECK_EQ(destroy(engine), 0);
}

int main(int argc, char **argv) {
    sigset_t mask, mask_after;
    void *handle;

    if (argc != 2)
        skip("the name of the library is missing");
    library = argv[1];
    device = open_sim();
    buffer = map_pages(PAGE);
    CHECK(dlsym(RTLD_DEFAULT, "amr_version") == NULL);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);

    /* Loaded and not used. */
    handle = open_library();
    CHECK_EQ(count_tasks(), 1);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &mask_after), 0);
    for (int signal = 1; signal < SIGRTMIN; signal++)
        CHECK_EQ(sigismember(&mask_after, signal), sigismember(&mask, signal));
    CHECK_EQ(dlclose(handle), 0);
    handle = open_library();
    CHECK_EQ(count_tasks(), 1);

    engine_of_its_own(handle);
    wait_tasks(1);
    use(handle);
    CHECK(count_tasks() > 1);
    CHECK_EQ(dlclose(handle), 0);

    CHECK_EQ(sem_init(&used, 0, 0), 0);
    CHECK_EQ(sem_init(&closed, 0, 0), 0);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;

        handle = open_library();
        CHECK_EQ(pthread_create(&thread, NULL, user, handle), 0);
        sem_wait(&used);
        CHECK_EQ(dlclose(handle), 0);
        sem_post(&closed);
        CHECK_EQ(pthread_join(thread, NULL), 0);
    }
    close_device(device);
    return 0;
}
