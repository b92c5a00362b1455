/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The life of the process: load, fork, exit, and the report at its end. */
#include "sim_internal.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_ullong late_calls;

static void report(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One write for each line, so that the lines of several processes do not mix. */
static void report(const char *format, ...) {
    char line[512];
    va_list arguments;
    int length, fd;

    if (sim_report_path[0] == '\0')
        return;
    va_start(arguments, format);
    length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    fd = open(sim_report_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, (size_t)length) != length)
        sim_abort_line("cannot write the report to %s", sim_report_path);
    close(fd);
}

uint64_t sim_exit_late_calls(void) {
    return atomic_load(&late_calls);
}

void sim_exit_late_call(void) {
    report("pid=%d calls_after_exit=%llu\n", (int)getpid(), atomic_fetch_add(&late_calls, 1) + 1);
}

SIM_EXPORT void sim_mark_exit(void) {
    sim_feature_set(SIM_FEATURE_EXITED, true);
    /* From here on every running thread has either seen the mark or is seen as running. */
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

__attribute__((destructor)) static void at_exit(void) {
    struct sim_counts counts;
    uint64_t linger_ms = sim_get(&sim_settings.linger_ms);
    struct timespec linger = {(time_t)(linger_ms / 1000), (long)(linger_ms % 1000) * 1000000};

    sim_mark_exit();
    sim_get_counts(&counts);
    report("pid=%d reg_calls=%llu reg_failed=%llu dereg_calls=%llu dereg_failed=%llu live_mrs=%llu "
           "live_pds=%llu live_contexts=%llu pinned_bytes=%llu peak_running=%llu "
           "running_at_exit=%llu calls_after_exit=%llu\n",
           (int)getpid(), (unsigned long long)counts.reg_calls,
           (unsigned long long)counts.reg_failed, (unsigned long long)counts.dereg_calls,
           (unsigned long long)counts.dereg_failed, (unsigned long long)counts.live_mrs,
           (unsigned long long)counts.live_pds, (unsigned long long)counts.live_contexts,
           (unsigned long long)counts.pinned_bytes, (unsigned long long)counts.peak_running,
           (unsigned long long)counts.running, (unsigned long long)counts.calls_after_exit);
    nanosleep(&linger, NULL);
}

/* Locks are taken in the order in which the code nests them. */
static void before_fork(void) {
    sim_pin_lock();
    sim_mr_pool_lock();
    sim_threads_lock();
    sim_rules_lock();
    sim_record_lock();
}

static void after_fork_in_parent(void) {
    sim_record_unlock();
    sim_rules_unlock();
    sim_threads_unlock();
    sim_mr_pool_unlock();
    sim_pin_unlock();
}

static void after_fork_in_child(void) {
    sim_threads_after_fork();
    sim_rules_after_fork();
    sim_calls_after_fork();
    sim_pin_after_fork();
    after_fork_in_parent();
}

__attribute__((constructor)) static void at_load(void) {
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    sim_control_start();
    sim_devices_start();
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}
