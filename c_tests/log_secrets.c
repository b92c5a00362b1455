/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Who reads the log learns no key and no address, unless it is that of level debug: with a key and
 * an address a peer can read and write memory. Runs itself to see.
 */
#include "device.h"
#include "process.h"

/* Tells the parent what must not be told to anybody else. */
static void secret(uint64_t value) {
    printf("%llu\n", (unsigned long long)value);
}

static void work(void) {
    struct device device = open_sim();
    struct amr_engine *engine = new_engine(2, 64);
    struct amr_cq *cq = new_cq(engine, 16);
    char *buffer = map_pages(16 * PAGE);
    struct ibv_mr *mr;
    struct amr_wc wc;

    secret((uintptr_t)buffer);
    secret((uintptr_t)device.pd);
    secret((uintptr_t)device.context);
    secret((uintptr_t)engine);
    secret((uintptr_t)cq);
    for (int i = 0; i < 16; i++) {
        mr = reg(cq, device.pd, buffer + (size_t)i * PAGE, PAGE);
        secret((uintptr_t)mr);
        secret((uintptr_t)mr->addr);
        secret(mr->lkey);
        secret(mr->rkey);
        CHECK_EQ(sim_configure("dereg_fail_nth=1:EBUSY"), 0);
        post(cq, dereg_wr(0, mr));
        wc = read_wc(cq);
        CHECK_EQ(wc.status, EBUSY);
        post(cq, dereg_wr(0, wc.mr));
        CHECK_EQ(read_wc(cq).status, 0);
        CHECK_EQ(sim_configure("fail_nth=1:EFAULT"), 0);
        post_reg(cq, 0, device.pd, buffer, PAGE);
        CHECK_EQ(read_wc(cq).status, EFAULT);
        reset_sim();
    }
    /* A region that nobody has read and that cannot be deregistered: a warning. */
    CHECK_EQ(sim_configure("dereg_fail_nth=1:EBUSY"), 0);
    post_reg(cq, 0, device.pd, buffer, PAGE);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

static void check_level(const char *level, int may_tell) {
    const char *const environment[] = {level, NULL};
    struct run run = run_self("work", environment);
    int told = 0;

    if (run.status != 0)
        FAIL("%s: wait status %#x: %s", level, run.status, run.err);
    CHECK(strstr(run.err, "amr: ") != NULL); /* the log was on */
    for (char *line = strtok(run.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char hexadecimal[32];

        /* A small number may well be in the log for another reason. */
        if (strtoull(line, NULL, 10) < 10000)
            continue;
        snprintf(hexadecimal, sizeof(hexadecimal), "%llx", strtoull(line, NULL, 10));
        told += strstr(run.err, line) != NULL || strstr(run.err, hexadecimal) != NULL;
        if (told > 0 && !may_tell)
            FAIL("%s: the log tells %s (%#llx)", level, line, strtoull(line, NULL, 10));
    }
    /* The test can find what is told. */
    CHECK_EQ(told > 0, may_tell);
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        work();
        return 0;
    }
    if (!sim_present())
        no_device("not the simulated device");
    check_level("AMR_LOG=warn", 0);
    check_level("AMR_LOG=info", 0);
    check_level("AMR_LOG=debug", 1);
    return 0;
}
