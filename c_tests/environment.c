/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The variables AMR_*: what they say is done; a bad value gives one line on standard error and the
 * default. Runs itself once for each value. F51.
 */
#include "device.h"
#include "process.h"

#include <sched.h>

/* ---- The program that obeys ------------------------------------------------------------------ */

static void read_line(const char *path, const char *key, char *value, size_t size) {
    FILE *file = fopen(path, "re");
    char line[4096];

    CHECK(file != NULL);
    value[0] = '\0';
    while (fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            snprintf(value, size, "%s", line + strlen(key));
    fclose(file);
    value[strcspn(value, "\n")] = '\0';
}

/* The CPUs of all workers, which must agree. */
static void worker_cpus(char *cpus, size_t size) {
    DIR *dir = opendir("/proc/self/task");
    int found = 0;

    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[512], name[64], own[1024];

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        read_line(path, "Name:\t", name, sizeof(name));
        read_line(path, "Cpus_allowed_list:\t", own, sizeof(own));
        if (strncmp(name, "amr-", 4) != 0)
            continue;
        if (found++ == 0)
            snprintf(cpus, size, "%s", own);
        CHECK_STR(own, cpus);
    }
    closedir(dir);
    CHECK(found > 0);
}

static int show(void) {
    struct device device = open_sim();
    void *buffer = map_pages(PAGE);
    struct amr_stats stats = stats_of(NULL);
    char cpus[1024];
    struct amr_cq *cq = new_cq(NULL, 1);

    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, buffer, PAGE)), 0);
    worker_cpus(cpus, sizeof(cpus));
    printf("%u workers, queue of %u, CPUs %s\n", stats.workers, stats.queue_depth, cpus);
    return 0;
}

/* ---- The test -------------------------------------------------------------------------------- */

static char cpus[1024]; /* of this process */
static int cpu_count;

static void expect(const char *setting, unsigned workers, unsigned depth, const char *expected_cpus,
                   int complains) {
    const char *const environment[] = {setting, NULL};
    struct run run = run_self("show", environment);
    char expected[2048], shown[64];

    if (run.status != 0)
        FAIL("%s: wait status %#x, %s", setting, run.status, run.err);
    snprintf(expected, sizeof(expected), "%u workers, queue of %u, CPUs %s\n", workers, depth,
             expected_cpus);
    if (strcmp(run.out, expected) != 0)
        FAIL("%s: %s, expected %s", setting, run.out, expected);
    if (!complains) {
        CHECK_STR(run.err, "");
        return;
    }
    /* One line, which shows the variable and its value. */
    snprintf(shown, sizeof(shown), "%.*s=\"%s\"", (int)strcspn(setting, "="), setting,
             strchr(setting, '=') + 1);
    if (strstr(run.err, shown) == NULL || strchr(run.err, '\n') == NULL ||
        strchr(run.err, '\n')[1] != '\0')
        FAIL("%s: complaint \"%s\"", setting, run.err);
}

static unsigned default_workers(void) {
    return cpu_count < 8 ? (unsigned)cpu_count : 8;
}

static void good_values(void) {
    char one_cpu[64], cpu[32];
    int first = atoi(cpus);

    expect("AMR_UNKNOWN=1", default_workers(), 16384, cpus, 0);
    expect("AMR_WORKERS=1", 1, 16384, cpus, 0);
    expect("AMR_WORKERS=3", 3, 16384, cpus, 0);
    expect("AMR_WORKERS=64", 64, 16384, cpus, 0);
    expect("AMR_QUEUE_DEPTH=64", default_workers(), 64, cpus, 0);
    expect("AMR_QUEUE_DEPTH=1000", default_workers(), 1024, cpus, 0);
    expect("AMR_QUEUE_DEPTH=1048576", default_workers(), 1048576, cpus, 0);
    snprintf(cpu, sizeof(cpu), "%d", first);
    snprintf(one_cpu, sizeof(one_cpu), "AMR_CPUS=%d", first);
    expect(one_cpu, default_workers(), 16384, cpu, 0);
    snprintf(one_cpu, sizeof(one_cpu), "AMR_CPUS=%d-%d", first, first);
    expect(one_cpu, default_workers(), 16384, cpu, 0);
}

static void bad_values(void) {
    static const char *const settings[] = {
        "AMR_WORKERS=0",
        "AMR_WORKERS=65",
        "AMR_WORKERS=-1",
        "AMR_WORKERS=many",
        "AMR_WORKERS=2x",
        "AMR_WORKERS=18446744073709551617",
        "AMR_QUEUE_DEPTH=0",
        "AMR_QUEUE_DEPTH=1048577",
        "AMR_QUEUE_DEPTH=-5",
        "AMR_QUEUE_DEPTH=deep",
        "AMR_CPUS=all",
        "AMR_CPUS=1-0",
        "AMR_CPUS=0-",
        /* No CPU of any machine, and one that this machine does not have. */
        "AMR_CPUS=99999999999",
        "AMR_CPUS=8191",
        "AMR_LOG=loudly",
    };

    for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
        expect(settings[i], default_workers(), 16384, cpus, 1);
}

/* Workers run where the process may, and as many as it has CPUs. */
static void inherited_affinity(void) {
    cpu_set_t before, one;
    char cpu[32];

    CHECK_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)atoi(cpus), &one);
    CHECK_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    snprintf(cpu, sizeof(cpu), "%d", atoi(cpus));
    expect("AMR_UNKNOWN=1", 1, 16384, cpu, 0);
    expect("AMR_WORKERS=4", 4, 16384, cpu, 0);
    CHECK_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

static void log_output(void) {
    const char *const debug[] = {"AMR_LOG=debug", NULL};
    struct run run = run_self("show", debug);

    CHECK_EQ(run.status, 0);
    CHECK(run.err[0] != '\0');
    CHECK(run.err[strlen(run.err) - 1] == '\n');
    CHECK(strchr(run.out, '\n')[1] == '\0');
}

int main(int argc, char **argv) {
    static const char *const variables[] = {"AMR_WORKERS", "AMR_QUEUE_DEPTH", "AMR_CPUS",
                                            "AMR_LOG"};
    cpu_set_t set;

    (void)argv;
    if (argc > 1)
        return show();
    if (!sim_present())
        no_device("not the simulated device");
    for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
        CHECK_EQ(unsetenv(variables[i]), 0);
    CHECK_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    cpu_count = CPU_COUNT(&set);
    read_line("/proc/self/status", "Cpus_allowed_list:\t", cpus, sizeof(cpus));
    good_values();
    bad_values();
    inherited_affinity();
    log_output();
    return 0;
}
