/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A callback forks, and returns in the child too: the child performs nothing of the parent's and
 * ends; in the parent each request completes once.
 */
#include "device.h"
#include "process.h"

#include <pthread.h>

enum { REQUESTS = 4 };

static int *callbacks; /* shared with the child */
static pid_t parent, child;

static void callback(struct ibv_mr *mr, int status, void *ctx) {
    CHECK_EQ(status, 0);
    CHECK_EQ(getpid(), parent);
    __atomic_add_fetch(callbacks, 1, __ATOMIC_SEQ_CST);
    *(struct ibv_mr **)ctx = mr;
    if (child == 0)
        child = fork();
    CHECK(child >= 0);
}

int main(void) {
    struct device device = open_sim();
    void *buffer = map_pages(PAGE);
    struct ibv_mr *mrs[REQUESTS];
    int status;

    setenv("AMR_WORKERS", "1", 1);
    callbacks = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(callbacks != MAP_FAILED);
    parent = getpid();
    CHECK(amr_default_engine() != NULL);
    sim_gate_close(SIM_REG);
    for (int i = 0; i < REQUESTS; i++)
        CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, callback, &mrs[i]), 0);
    sim_gate_open();
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    CHECK_EQ(*callbacks, REQUESTS);

    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_EQ(*callbacks, REQUESTS);
    for (int i = 0; i < REQUESTS; i++)
        CHECK_EQ(ibv_dereg_mr(mrs[i]), 0);
    close_device(device);
    return 0;
}
