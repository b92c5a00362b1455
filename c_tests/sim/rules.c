/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Rules for single calls, and the gate. */
#include "sim_internal.h"

enum { MAX_RANGES = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_rule rules[SIM_MAX_RULES];
static size_t rule_count;
static struct {
    uintptr_t begin, end;
    int err;
} ranges[MAX_RANGES];
static size_t range_count;
static uint64_t next_number[SIM_DEREG + 1] = {[SIM_REG] = 1, [SIM_DEREG] = 1};

static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static int gate_kinds;
static unsigned gate_passes;

bool sim_rules_add(const struct sim_rule *added, size_t count, int restart) {
    bool fits;

    pthread_mutex_lock(&lock);
    fits = count <= SIM_MAX_RULES - rule_count;
    if (fits && count > 0) {
        memcpy(&rules[rule_count], added, count * sizeof(*added));
        rule_count += count;
        for (int kind = SIM_REG; kind <= SIM_DEREG; kind <<= 1) {
            if (restart & kind)
                next_number[kind] = 1;
        }
        sim_feature_set(SIM_FEATURE_RULES, true);
    }
    pthread_mutex_unlock(&lock);
    return fits;
}

void sim_rules_clear(void) {
    pthread_mutex_lock(&lock);
    rule_count = 0;
    range_count = 0;
    next_number[SIM_REG] = next_number[SIM_DEREG] = 1;
    sim_feature_set(SIM_FEATURE_RULES, false);
    pthread_mutex_unlock(&lock);
}

SIM_EXPORT void sim_fail_range(const void *addr, size_t length, int err) {
    pthread_mutex_lock(&lock);
    if (range_count == MAX_RANGES)
        sim_exit_line("sim_fail_range: more than %d ranges", MAX_RANGES);
    ranges[range_count].begin = (uintptr_t)addr;
    ranges[range_count].end = (uintptr_t)addr + length;
    ranges[range_count].err = err;
    range_count++;
    sim_feature_set(SIM_FEATURE_RULES, true);
    pthread_mutex_unlock(&lock);
}

uint64_t sim_rules_next_number(int kind) {
    uint64_t number;

    pthread_mutex_lock(&lock);
    number = next_number[kind]++;
    pthread_mutex_unlock(&lock);
    return number;
}

int sim_rules_apply(int kind, uint64_t number, const void *addr, size_t length,
                    uint64_t *delay_us) {
    uintptr_t begin = (uintptr_t)addr;
    int err = SIM_PROCEED;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < rule_count; i++) {
        const struct sim_rule *rule = &rules[i];

        if (rule->kind != kind || number < rule->first || number > rule->last)
            continue;
        if (rule->is_delay)
            *delay_us += rule->value;
        else if (err == SIM_PROCEED)
            err = (int)rule->value;
    }
    for (size_t i = 0; i < range_count && kind == SIM_REG && err == SIM_PROCEED; i++) {
        if (begin < ranges[i].end && (ranges[i].begin < begin + length || begin + length < begin))
            err = ranges[i].err;
    }
    pthread_mutex_unlock(&lock);
    return err;
}

void sim_gate_wait(int kind) {
    pthread_mutex_lock(&lock);
    while ((gate_kinds & kind) && gate_passes == 0)
        pthread_cond_wait(&gate_changed, &lock);
    if (gate_kinds & kind)
        gate_passes--;
    pthread_mutex_unlock(&lock);
}

static void gate_set(int kinds, unsigned passes) {
    pthread_mutex_lock(&lock);
    gate_kinds = kinds;
    gate_passes = passes;
    sim_feature_set(SIM_FEATURE_GATE, kinds != 0);
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&lock);
}

SIM_EXPORT void sim_gate_close(int kinds) {
    gate_set(kinds, 0);
}

SIM_EXPORT void sim_gate_open(void) {
    gate_set(0, 0);
}

SIM_EXPORT void sim_gate_pass(unsigned count) {
    pthread_mutex_lock(&lock);
    gate_passes += count;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&lock);
}

void sim_rules_lock(void) {
    pthread_mutex_lock(&lock);
}

void sim_rules_unlock(void) {
    pthread_mutex_unlock(&lock);
}

void sim_rules_after_fork(void) {
    /* Threads of the parent that wait at the gate do not exist here. */
    pthread_cond_init(&gate_changed, NULL);
}
