/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Pages land where the policy of the submitting thread puts them, whichever worker faults them in;
 * the policy of a range comes first. F52. Needs two NUMA nodes.
 */
#include "residency.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <unistd.h>

static struct device device;
static struct amr_cq *cq;

static int node_count(void) {
    char path[64];
    int count = 0;

    for (;; count++) {
        snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", count);
        if (access(path, F_OK) != 0)
            return count;
    }
}

/* Moves this thread to the CPUs of a node. */
static void run_on_node(int node) {
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    for (int cpu = 0; cpu < (int)sysconf(_SC_NPROCESSORS_CONF); cpu++) {
        char path[64];

        snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpu%d", node, cpu);
        if (access(path, F_OK) == 0)
            CPU_SET(cpu, &cpus);
    }
    CHECK_EQ(sched_setaffinity(0, sizeof(cpus), &cpus), 0);
}

static void set_policy(int mode, unsigned long nodes) {
    CHECK_EQ(syscall(SYS_set_mempolicy, mode, nodes != 0 ? &nodes : NULL, 64), 0);
}

static void expect_on(char *pages, size_t length, int node) {
    for (size_t i = 0; i < length; i += PAGE) {
        void *page = pages + i;
        int status = -1;

        CHECK_EQ(syscall(SYS_move_pages, 0, 1UL, &page, NULL, &status, 0), 0);
        CHECK_EQ(status, node);
    }
}

/* Fresh memory of any size is on the node. bind: a node for the range, or -1. */
static void expect_node(int node, int bind) {
    static const size_t lengths[] = {PAGE, 64 * PAGE, 8 * MIB};

    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        char *pages = map_pages(lengths[i]);
        unsigned long nodes = bind < 0 ? 0 : 1UL << bind;
        struct ibv_mr *mr;

        if (bind >= 0)
            CHECK_EQ(syscall(SYS_mbind, pages, lengths[i], MPOL_BIND, &nodes, 64UL, 0), 0);
        mr = reg(cq, device.pd, pages, lengths[i]);
        expect_on(pages, lengths[i], node);
        CHECK_EQ(ibv_dereg_mr(mr), 0);
        CHECK_EQ(munmap(pages, lengths[i]), 0);
    }
}

int main(void) {
    struct amr_engine_attr attr;
    struct amr_engine *engine;

    if (node_count() < 2)
        skip("one NUMA node only");
    device = open_device();
    memset(&attr, 0, sizeof(attr));
    attr.size = sizeof(attr);
    attr.workers = 2;

    /* Workers on one node or the other. */
    for (int home = 0; home < 2; home++) {
        run_on_node(home);
        engine = amr_create_engine(&attr);
        CHECK(engine != NULL);
        cq = new_cq(engine, 4);
        for (int node = 0; node < 2; node++) {
            run_on_node(node);
            expect_node(node, -1);
            set_policy(MPOL_BIND, 1UL << (1 - node));
            expect_node(1 - node, -1);
            set_policy(MPOL_PREFERRED, 1UL << (1 - node));
            expect_node(1 - node, -1);
            set_policy(MPOL_DEFAULT, 0);
            expect_node(1 - node, 1 - node);
            expect_node(node, -1);
        }
        CHECK_EQ(amr_destroy_cq(cq), 0);
        CHECK_EQ(amr_destroy_engine(engine), 0);
    }
    close_device(device);
    return 0;
}
