/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Registration and deregistration by one call each, and what a callback's thread is like. F50. */
#include "device.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

struct heard {
    struct outcome outcome;
    char name[16];
    sigset_t blocked;
};

static volatile pid_t handler_thread;

static void callback(struct ibv_mr *mr, int status, void *ctx) {
    struct heard *heard = ctx;

    pthread_getname_np(pthread_self(), heard->name, sizeof(heard->name));
    pthread_sigmask(SIG_BLOCK, NULL, &heard->blocked);
    outcome_callback(mr, status, &heard->outcome);
}

static void handler(int signal) {
    (void)signal;
    handler_thread = thread_id();
}

static void check_worker(const struct heard *heard) {
    CHECK(heard->outcome.thread != thread_id());
    CHECK(strncmp(heard->name, "amr-", 4) == 0);
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        /* Two that cannot be blocked, and those that the C library keeps for itself. */
        if (signal == SIGKILL || signal == SIGSTOP || (signal >= 32 && signal < SIGRTMIN))
            continue;
        if (!sigismember(&heard->blocked, signal))
            FAIL("signal %d is not blocked in the worker", signal);
    }
}

/* Workers that took signals would take this one, for the main thread does not. */
static void check_signal_waits_for_main(void) {
    struct sigaction action = {.sa_handler = handler};
    sigset_t user1, pending;

    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    sigemptyset(&user1);
    sigaddset(&user1, SIGUSR1);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &user1, NULL), 0);
    CHECK_EQ(kill(getpid(), SIGUSR1), 0);
    CHECK_EQ(sigpending(&pending), 0);
    CHECK(sigismember(&pending, SIGUSR1));
    CHECK_EQ(handler_thread, 0);
    CHECK_EQ(pthread_sigmask(SIG_UNBLOCK, &user1, NULL), 0);
    CHECK_EQ(handler_thread, thread_id());
}

int main(void) {
    struct device device = open_device();
    char *buffer = map_pages(4 * PAGE);
    struct heard registered = {0}, gone = {0};
    sigset_t mask, mask_after;
    cpu_set_t cpus, cpus_after;
    struct ibv_mr *mr;

    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &mask, NULL), 0);
    CHECK_EQ(sched_getaffinity(0, sizeof(cpus), &cpus), 0);

    outcome_init(&registered.outcome);
    CHECK_EQ(amr_register_async(device.pd, buffer + 16, 2 * PAGE, ACCESS, callback, &registered),
             0);
    outcome_wait(&registered.outcome);
    CHECK_EQ(registered.outcome.status, 0);
    mr = registered.outcome.mr;
    CHECK(mr != NULL);
    CHECK(mr->context == device.context);
    CHECK(mr->pd == device.pd);
    CHECK(mr->addr == buffer + 16);
    CHECK_EQ(mr->length, 2 * PAGE);
    CHECK(mr->lkey != 0);
    check_worker(&registered);

    CHECK_EQ(sched_getaffinity(0, sizeof(cpus_after), &cpus_after), 0);
    CHECK(CPU_EQUAL(&cpus, &cpus_after));
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &mask_after), 0);
    for (int signal = 1; signal < SIGRTMIN; signal++)
        CHECK_EQ(sigismember(&mask_after, signal), sigismember(&mask, signal));
    check_signal_waits_for_main();

    outcome_init(&gone.outcome);
    CHECK_EQ(amr_deregister_async(mr, callback, &gone), 0);
    outcome_wait(&gone.outcome);
    CHECK_EQ(gone.outcome.status, 0);
    CHECK(gone.outcome.mr == NULL);
    check_worker(&gone);

    /* A region from elsewhere will do as well. */
    mr = ibv_reg_mr(device.pd, buffer, PAGE, ACCESS);
    CHECK(mr != NULL);
    outcome_end(&gone.outcome);
    outcome_init(&gone.outcome);
    CHECK_EQ(amr_deregister_async(mr, callback, &gone), 0);
    outcome_wait(&gone.outcome);
    CHECK_EQ(gone.outcome.status, 0);

    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    outcome_end(&registered.outcome);
    outcome_end(&gone.outcome);
    close_device(device);
    return 0;
}
