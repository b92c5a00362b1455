/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Another program is executed in the middle of registrations and deregistrations: by fork() and
 * exec from the main thread, from a thread and from a callback, by posix_spawn(), by vfork(), and
 * in place of this one. It uses the library from the beginning, and its parent goes on. F40.
 */
#include "device.h"
#include "process.h"

#include <pthread.h>
#include <spawn.h>

extern char **environ;

enum { USED = 9, ROUNDS = 10 };

static struct device device;
static char *buffer;

/* The program that is executed. */
static int use(void) {
    struct amr_cq *cq;

    device = open_sim();
    buffer = map_pages(PAGE);
    cq = new_cq(NULL, 2);
    post(cq, dereg_wr(1, reg(cq, device.pd, buffer, PAGE)));
    CHECK_EQ(read_wc(cq).status, 0);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    return USED;
}

static void exec_use(void) {
    execl("/proc/self/exe", program_invocation_name, "use", (char *)NULL);
    _exit(127);
}

static void check_used(pid_t child) {
    CHECK(child > 0);
    CHECK_EQ(wait_child(child), USED << 8);
}

static void *fork_and_exec(void *arg) {
    pid_t child = fork();

    if (child == 0)
        exec_use();
    check_used(child);
    return arg;
}

static void spawn(void) {
    char name[] = "fork_exec", mode[] = "use";
    char *arguments[] = {name, mode, NULL};
    pid_t child;

    CHECK_EQ(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    check_used(child);
}

static void vfork_and_exec(void) {
    pid_t child = vfork();

    if (child == 0)
        exec_use();
    check_used(child);
}

static void from_callback(struct ibv_mr *mr, int status, void *ctx) {
    CHECK_EQ(status, 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    fork_and_exec(NULL);
    outcome_callback(NULL, 0, ctx);
}

/* A child that does not execute anything is not told that its regions are under way, either. */
static void deregister_in_child(void) {
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        sim_reset();
        exit_child(use());
    }
    check_used(child);
}

static void in_the_middle(int round) {
    struct amr_engine *engine = new_engine(2, 64);
    struct amr_cq *cq = new_cq(engine, 64);
    struct ibv_mr *mrs[8];
    struct outcome outcome;
    pthread_t thread;
    struct amr_wc wcs[16];

    for (int i = 0; i < 8; i++)
        mrs[i] = reg(cq, device.pd, buffer, PAGE);
    sim_gate_close(round % 2 ? SIM_REG : SIM_DEREG);
    for (uint64_t i = 0; i < 8; i++) {
        post(cq, dereg_wr(i, mrs[i]));
        post_reg(cq, i, device.pd, buffer, PAGE);
    }
    fork_and_exec(NULL);
    CHECK_EQ(pthread_create(&thread, NULL, fork_and_exec, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    spawn();
    vfork_and_exec();
    deregister_in_child();
    sim_gate_open();
    outcome_init(&outcome);
    CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, from_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    outcome_end(&outcome);
    read_wcs(cq, wcs, 16);
    for (int i = 0; i < 16; i++) {
        CHECK_EQ(wcs[i].status, 0);
        if (wcs[i].mr != NULL)
            CHECK_EQ(ibv_dereg_mr(wcs[i].mr), 0);
    }
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

/* This program is replaced while workers are in verbs calls. */
static void replace(void) {
    struct amr_cq *cq = new_cq(NULL, 64);

    sim_gate_close(SIM_REG);
    for (uint64_t i = 0; i < 64; i++)
        post_reg(cq, i, device.pd, buffer, PAGE);
    wait_running(1);
    exec_use();
}

int main(int argc, char **argv) {
    pid_t child;

    if (argc > 1 && strcmp(argv[1], "use") == 0)
        return use();
    device = open_sim();
    CHECK_EQ(sim_configure("pins=0"), 0);
    buffer = map_pages(PAGE);
    for (int i = 0; i < ROUNDS; i++)
        in_the_middle(i);
    CHECK_EQ(sim_counts().live_mrs, 0);
    close_device(device);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        device = open_sim();
        replace();
    }
    check_used(child);
    return 0;
}
