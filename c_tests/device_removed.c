/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A device of Soft-RoCE that is removed while it is in use. Its driver cannot cut a user off, so
 * the kernel waits until the last context is closed, lets nobody open it meanwhile, and goes on
 * serving those who have it open: registrations succeed, failures are not taken for its end.
 */
#include "device.h"
#include "process.h"

#define NET "amr_dummy"
#define RDMA "amr_rxe"

static void run(const char *command) {
    if (system(command) != 0)
        FAIL("failed: %s", command);
}

/* NULL if there is none. */
static struct ibv_context *open_named(const char *name) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = NULL;

    CHECK(list != NULL);
    for (size_t i = 0; list[i] != NULL; i++)
        if (strcmp(ibv_get_device_name(list[i]), name) == 0)
            context = ibv_open_device(list[i]);
    ibv_free_device_list(list);
    return context;
}

static pid_t begin_removal(void) {
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        execlp("rdma", "rdma", "link", "delete", RDMA, (char *)NULL);
        FAIL("execlp: %s", strerror(errno));
    }
    /* What can be opened goes first. */
    for (struct ibv_context *context; (context = open_named(RDMA)) != NULL; usleep(1000))
        CHECK_EQ(ibv_close_device(context), 0);
    return child;
}

int main(void) {
    struct device device;
    struct amr_cq *cq;
    struct amr_wc wc;
    pid_t removal;

    run("ip link add " NET " type dummy && ip link set " NET " up");
    run("rdma link add " RDMA " type rxe netdev " NET);
    device.context = open_named(RDMA);
    CHECK(device.context != NULL);
    device.pd = ibv_alloc_pd(device.context);
    CHECK(device.pd != NULL);
    cq = new_cq(NULL, 1);

    removal = begin_removal();
    CHECK_EQ(waitpid(removal, NULL, WNOHANG), 0);
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, map_pages(PAGE), PAGE)), 0);
    post_reg(cq, 1, device.pd, (void *)(64 * PAGE), PAGE);
    wc = read_wc(cq);
    CHECK_EQ(wc.status, EFAULT);
    CHECK_EQ(wc.diag, AMR_DIAG_HOLE);
    CHECK_EQ(waitpid(removal, NULL, WNOHANG), 0);

    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    check_child(removal);
    run("ip link delete " NET);
    return 0;
}
