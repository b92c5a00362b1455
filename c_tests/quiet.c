/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The library prints nothing, whether things go well or not. Runs itself to see. */
#include "device.h"
#include "process.h"

static struct device device;
static char *buffer;

static void goes_well(void) {
    struct amr_engine *engine = new_engine(2, 0);
    struct amr_cq *cq = new_cq(engine, 4);
    struct outcome outcome;

    CHECK(amr_cq_fd(cq) >= 0);
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, buffer, PAGE)), 0);
    post_reg(cq, 1, device.pd, buffer, PAGE);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);

    outcome_init(&outcome);
    CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, outcome_callback, &outcome), 0);
    outcome_wait(&outcome);
    CHECK_EQ(ibv_dereg_mr(outcome.mr), 0);
}

static void goes_wrong(void) {
    struct amr_cq *cq = new_cq(NULL, 4);
    struct amr_engine_attr attr = {.size = sizeof(attr), .workers = 1000};
    struct amr_wr wr = reg_wr(1, NULL, buffer, PAGE, ACCESS);
    char text[1024];
    struct amr_wc wc;
    pid_t child;

    CHECK(amr_create_engine(&attr) == NULL);
    attr.workers = 1;
    attr.cpus = "8191";
    CHECK(amr_create_engine(&attr) == NULL);
    CHECK_EQ(amr_post(cq, &wr, 1, NULL), EINVAL);
    CHECK_EQ(amr_poll_cq(NULL, 1, &wc), -EINVAL);

    CHECK_EQ(sim_configure("fail_first=20:EAGAIN"), 0);
    post_reg(cq, 2, device.pd, buffer, PAGE);
    wc = read_wc(cq);
    CHECK(wc.status != 0);
    CHECK(amr_explain(&wc, text, sizeof(text)) > 0);
    reset_sim();
    CHECK_EQ(sim_configure("fail_first=1:ENOMEM,dereg_fail_nth=1:EBUSY"), 0);
    post_reg(cq, 3, device.pd, buffer, PAGE);
    CHECK_EQ(read_wc(cq).status, ENOMEM);

    /* A region that is still unread and cannot be deregistered. */
    post_reg(cq, 4, device.pd, buffer, PAGE);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);

    cq = new_cq(NULL, 1);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (amr_poll_cq(cq, 1, &wc) != -EPERM)
            _exit(1);
        exit_child(0);
    }
    check_child(child);
    CHECK_EQ(amr_destroy_cq(cq), 0);
}

int main(int argc, char **argv) {
    const char *const nothing_more[] = {NULL};
    struct run run;

    (void)argv;
    if (argc > 1) {
        device = open_sim();
        buffer = map_pages(PAGE);
        goes_well();
        goes_wrong();
        return 0;
    }
    if (!sim_present())
        no_device("not the simulated device");
    CHECK_EQ(unsetenv("AMR_LOG"), 0);
    run = run_self("use", nothing_more);
    CHECK_STR(run.err, "");
    CHECK_STR(run.out, "");
    CHECK_EQ(run.status, 0);
    return 0;
}
