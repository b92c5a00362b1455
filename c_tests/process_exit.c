/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The end of the process with work queued and running: it ends, with the status that was meant,
 * and no verbs call begins after exit has begun. F49. Runs itself once for each way to end.
 */
#include "device.h"
#include "process.h"

#include <pthread.h>

enum { STATUS = 7 };

static struct device device;
static char *buffer;
static struct amr_engine *engine;
static struct amr_cq *cq;

/* ---- The program that ends ------------------------------------------------------------------- */

static void ignore(struct ibv_mr *mr, int status, void *ctx) {
    (void)mr, (void)status, (void)ctx;
}

/* Once the exit handlers have run, nothing new is taken. */
static int exit_is_over;

static int may_be(int status) {
    return exit_is_over ? status == ESHUTDOWN
                        : status == 0 || status == EAGAIN || status == ESHUTDOWN;
}

/* Calls everything; mostly what it answers is not the point, that it answers is. */
static void call_everything(void) {
    struct amr_wr wr = reg_wr(1, device.pd, buffer, PAGE, ACCESS);
    struct amr_stats stats = {.size = sizeof(stats)};
    struct amr_limits limits = {.size = sizeof(limits)};
    struct amr_engine *new_one;
    struct amr_cq *new_queue;
    struct amr_wc wc;
    size_t posted;
    int status;

    CHECK(may_be(amr_register_async(device.pd, buffer, PAGE, ACCESS, ignore, NULL)));
    status = amr_post(cq, &wr, 1, &posted);
    CHECK(status == 0 ? posted == 1 : posted == 0);
    CHECK(may_be(status));
    CHECK(amr_poll_cq(cq, 1, &wc) >= 0);
    amr_wait_cq(cq, 1, &wc, 1);
    amr_cancel(cq, 1);
    amr_drain(NULL, NULL, 1);
    amr_drain(engine, device.pd, 1);
    CHECK_EQ(amr_query_stats(engine, &stats), 0);
    CHECK_EQ(amr_query_limits(device.context, &limits), 0);
    CHECK(amr_cq_fd(cq) >= 0);
    new_one = amr_create_engine(NULL);
    CHECK(new_one == NULL || !exit_is_over);
    if (new_one != NULL)
        CHECK_EQ(amr_destroy_engine(new_one), 0);
    else
        CHECK_EQ(errno, ESHUTDOWN);
    new_queue = amr_create_cq(NULL, 1);
    CHECK(new_queue == NULL || !exit_is_over);
    if (new_queue != NULL)
        CHECK_EQ(amr_destroy_cq(new_queue), 0);
    else
        CHECK_EQ(errno, ESHUTDOWN);
}

static void destroy_everything(void) {
    int status = amr_destroy_cq(cq);

    CHECK(status == 0 || status == EBUSY);
    if (status == 0)
        CHECK_EQ(amr_destroy_engine(engine), 0);
    else
        CHECK_EQ(amr_destroy_engine(engine), EBUSY);
}

static int at_the_very_end;

/* Runs after all exit handlers, and before the libraries are torn down. */
__attribute__((destructor)) static void destructor(void) {
    exit_is_over = 1;
    if (at_the_very_end)
        call_everything();
}

static void fill(struct amr_cq *queue, int count) {
    for (int i = 0; i < count; i++) {
        struct amr_wr wr = reg_wr((uint64_t)i, device.pd, buffer, PAGE, ACCESS);

        if (amr_post(queue, &wr, 1, NULL) != 0)
            break;
        if (amr_register_async(device.pd, buffer, PAGE, ACCESS, ignore, NULL) != 0)
            break;
    }
}

static void *waiting_thread(void *arg) {
    struct amr_cq *own = amr_create_cq(engine, 1); /* NULL if the exit was faster */
    struct amr_wc wc;

    amr_wait_cq(own, 1, &wc, -1);
    amr_drain(engine, NULL, -1);
    return arg;
}

static void *draining_thread(void *arg) {
    amr_drain(engine, NULL, -1);
    amr_drain(NULL, NULL, -1);
    return arg;
}

/* What comes is not read for long: the end of the process is near. */
static void *submitting_thread(void *arg) {
    struct amr_wc wc[64];

    for (;;) {
        fill(cq, 32);
        amr_poll_cq(cq, 64, wc);
    }
    return arg;
}

static void start(void *(*routine)(void *)) {
    pthread_t thread;

    CHECK_EQ(pthread_create(&thread, NULL, routine, NULL), 0);
}

static void *exiting_thread(void *arg) {
    exit(STATUS);
    return arg;
}

static void exit_in_callback(struct ibv_mr *mr, int status, void *ctx) {
    (void)mr, (void)status, (void)ctx;
    exit(STATUS);
}

static int has(const char *mode, const char *word) {
    return strstr(mode, word) != NULL;
}

/* The mode is a list of words. */
static int end_as_told(const char *mode) {
    pthread_t thread;

    if (has(mode, "early-handler"))
        atexit(has(mode, "destroy") ? destroy_everything : call_everything);
    device = open_sim();
    buffer = map_pages(PAGE);
    CHECK_EQ(sim_configure("pins=0"), 0);
    engine = new_engine(2, 4096);
    cq = new_cq(engine, 4096);
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, buffer, PAGE)), 0);
    if (has(mode, "late-handler"))
        atexit(has(mode, "destroy") ? destroy_everything : call_everything);
    at_the_very_end = has(mode, "destructor");
    if (has(mode, "watched"))
        CHECK(amr_cq_fd(cq) >= 0);

    /* Stuck in the device, or as many as possible under way. */
    if (has(mode, "stuck")) {
        sim_gate_close(SIM_REG);
        fill(cq, 100);
        wait_running(2);
    } else if (has(mode, "flood")) {
        fill(cq, 2000);
    }

    if (has(mode, "waiting")) {
        start(waiting_thread);
        start(draining_thread);
        usleep(2000);
    }
    if (has(mode, "submitting")) {
        start(submitting_thread);
        start(submitting_thread);
        usleep(2000);
    }

    if (has(mode, "thread")) {
        CHECK_EQ(pthread_create(&thread, NULL, exiting_thread, NULL), 0);
        pthread_join(thread, NULL);
    }
    if (has(mode, "callback")) {
        CHECK_EQ(amr_register_async(device.pd, buffer, PAGE, ACCESS, exit_in_callback, NULL), 0);
        pause();
    }
    if (has(mode, "signal"))
        kill(getpid(), SIGTERM);
    if (has(mode, "_exit"))
        _exit(STATUS);
    if (has(mode, "quick"))
        quick_exit(STATUS);
    return STATUS;
}

/* ---- The test -------------------------------------------------------------------------------- */

/* No line of the device's report may tell of a call that began too late. */
static void check_report(const char *mode, const char *path) {
    static const char key[] = "calls_after_exit=";
    FILE *file = fopen(path, "re");
    int lines = 0;
    char line[512];

    if (file == NULL)
        FAIL("%s: no report of the device", mode);
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *late = strstr(line, key);

        CHECK(late != NULL);
        if (atoi(late + sizeof(key) - 1) != 0)
            FAIL("%s: %s", mode, line);
        lines++;
    }
    fclose(file);
    if (lines != 1)
        FAIL("%s: %d reports of the device", mode, lines);
}

static void run_mode(const char *mode) {
    const char *settings = getenv("AMR_SIM");
    char path[] = "/tmp/amr-exit-XXXXXX";
    char variable[512];
    const char *const environment[] = {variable, NULL};
    struct run run;
    int fd = mkstemp(path);

    CHECK(fd >= 0);
    close(fd);
    /* The device lingers in its destructor, where a late call would be seen. */
    snprintf(variable, sizeof(variable), "AMR_SIM=%s%sreport=%s,linger_ms=30",
             settings != NULL ? settings : "", settings != NULL ? "," : "", path);
    run = run_self(mode, environment);
    if (run.out[0] != '\0' || run.err[0] != '\0')
        FAIL("%s: prints \"%s\" and \"%s\"", mode, run.out, run.err);
    if (has(mode, "signal")) {
        if (!WIFSIGNALED(run.status) || WTERMSIG(run.status) != SIGTERM)
            FAIL("%s: wait status %#x", mode, run.status);
    } else if (!WIFEXITED(run.status) || WEXITSTATUS(run.status) != STATUS) {
        FAIL("%s: wait status %#x", mode, run.status);
    }
    /* Ways to end that run no destructors make no report. */
    if (!has(mode, "signal") && !has(mode, "_exit") && !has(mode, "quick"))
        check_report(mode, path);
    unlink(path);
}

int main(int argc, char **argv) {
    static const char *const modes[] = {
        "return idle",
        "return flood",
        "return flood watched",
        "return stuck",
        "return waiting idle",
        "return waiting stuck",
        "return waiting flood",
        "return submitting",
        "return submitting watched late-handler",
        "callback submitting",
        "thread idle",
        "thread flood",
        "thread stuck",
        "callback idle",
        "callback flood",
        "signal idle",
        "signal flood",
        "signal stuck",
        "_exit idle",
        "_exit flood",
        "_exit stuck",
        "quick flood",
        "return early-handler idle",
        "return early-handler flood",
        "return early-handler stuck",
        "return destructor idle",
        "return destructor flood",
        "return destructor stuck",
        "return late-handler idle",
        "return late-handler flood",
        "return late-handler stuck",
        "thread late-handler flood",
        "callback early-handler idle",
        "callback late-handler idle",
        "return early-handler destroy idle",
        "return early-handler destroy flood",
        "return early-handler destroy stuck",
        "return late-handler destroy idle",
        "return late-handler destroy flood",
        "return late-handler destroy stuck",
    };

    if (argc > 1)
        return end_as_told(argv[1]);
    if (!sim_present())
        no_device("not the simulated device");
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
        run_mode(modes[i]);
    return 0;
}
