/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An engine's own CPUs: its workers run there, and nobody else's affinity changes. F51. */
#include "device.h"

#include <sched.h>

static cpu_set_t affinity(pid_t thread) {
    cpu_set_t set;

    CHECK_EQ(sched_getaffinity(thread, sizeof(set), &set), 0);
    return set;
}

static int first_of(const cpu_set_t *set) {
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, set))
            return cpu;
    FAIL("no CPU");
}

/* Where the worker runs that serves the next request of the engine. */
static cpu_set_t worker_affinity(struct device device, void *buffer, struct amr_engine *engine) {
    struct amr_cq *cq = new_cq(engine, 1);
    struct sim_call call;
    cpu_set_t worker;

    /* The device knows which thread called it. */
    sim_record(1);
    post_reg(cq, 1, device.pd, buffer, PAGE);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(sim_calls(&call, 1), 1);
    worker = affinity(call.tid);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    return worker;
}

static void check_engine(struct device device, void *buffer, const char *format, int cpu) {
    char list[32];
    struct amr_engine_attr attr = {.size = sizeof(attr), .workers = 2, .cpus = list};
    cpu_set_t before = affinity(0), after, worker;
    struct amr_engine *engine;

    snprintf(list, sizeof(list), format, cpu);
    engine = amr_create_engine(&attr);
    CHECK(engine != NULL);
    memset(list, 'x', sizeof(list)); /* not kept */
    after = affinity(0);
    CHECK(CPU_EQUAL(&before, &after));

    worker = worker_affinity(device, buffer, engine);
    CHECK_EQ(CPU_COUNT(&worker), 1);
    CHECK(CPU_ISSET((size_t)cpu, &worker));
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

/* A thread that is bound to a CPU does not bind the workers of its engine to it. */
static void check_bound_creator(struct device device, void *buffer, int cpu) {
    cpu_set_t before = affinity(0), bound, worker;
    struct amr_engine *engine;

    CPU_ZERO(&bound);
    CPU_SET((size_t)cpu, &bound);
    CHECK_EQ(sched_setaffinity(0, sizeof(bound), &bound), 0);
    engine = new_engine(2, 0);
    worker = worker_affinity(device, buffer, engine);
    CHECK(CPU_EQUAL(&worker, &before));
    worker = affinity(0);
    CHECK(CPU_EQUAL(&worker, &bound));
    CHECK_EQ(amr_destroy_engine(engine), 0);
    CHECK_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

int main(void) {
    struct device device = open_sim();
    void *buffer = map_pages(PAGE);
    cpu_set_t set = affinity(0);
    int first = first_of(&set);

    check_engine(device, buffer, "%d", first);
    /* One that is not there does not matter beside one that is. */
    check_engine(device, buffer, "%d,8191", first);
    check_bound_creator(device, buffer, first);
    close_device(device);
    return 0;
}
