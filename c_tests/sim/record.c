/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The last calls and their arguments. */
#include "sim_internal.h"

#include <sys/syscall.h>
#include <unistd.h>

enum { RECORDS = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_call records[RECORDS];
static uint64_t recorded;

void sim_record_call(const struct sim_call *call) {
    uint64_t end_ns = sim_now_ns();
    struct sim_call *record;

    pthread_mutex_lock(&lock);
    record = &records[recorded++ % RECORDS];
    *record = *call;
    record->tid = (int32_t)syscall(SYS_gettid);
    record->end_ns = end_ns;
    pthread_mutex_unlock(&lock);
}

SIM_EXPORT size_t sim_calls(struct sim_call *calls, size_t max) {
    uint64_t count;

    pthread_mutex_lock(&lock);
    count = recorded < RECORDS ? recorded : RECORDS;
    if (count > max)
        count = max;
    for (uint64_t i = 0; i < count; i++)
        calls[i] = records[(recorded - count + i) % RECORDS];
    pthread_mutex_unlock(&lock);
    return count;
}

void sim_record_restart(void) {
    pthread_mutex_lock(&lock);
    recorded = 0;
    pthread_mutex_unlock(&lock);
}

void sim_record_lock(void) {
    pthread_mutex_lock(&lock);
}

void sim_record_unlock(void) {
    pthread_mutex_unlock(&lock);
}
