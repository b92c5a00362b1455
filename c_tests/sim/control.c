/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Settings: from the environment variable AMR_SIM, and from tests. */
#include "sim_internal.h"

#include <limits.h>
#include <stdarg.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

_Atomic uint32_t sim_features;
struct sim_settings sim_settings;
char sim_report_path[4096];

static const struct {
    const char *name;
    size_t offset;
    uint64_t initial;
    uint64_t max;
} numbers[] = {
#define NUMBER(name, initial, max)                                                                 \
    { #name, offsetof(struct sim_settings, name), initial, max }
    NUMBER(pins, 1, 1),
    NUMBER(odp, 0, 1),
    NUMBER(gone, 0, 1),
    NUMBER(dmabuf, 0, 1),
    NUMBER(devices, 1, SIM_MAX_DEVICES),
    NUMBER(busy, 0, 1),
    NUMBER(clobber, 0, 1),
    NUMBER(record, 0, 1),
    NUMBER(peak, 1, 1),
    NUMBER(max_mr, 0, INT_MAX),
    NUMBER(max_mr_size, UINT64_MAX, UINT64_MAX),
    NUMBER(reg_delay_us, 0, UINT32_MAX),
    NUMBER(dereg_delay_us, 0, UINT32_MAX),
    NUMBER(linger_ms, 0, UINT32_MAX),
#undef NUMBER
};

enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

static const struct {
    const char *name;
    int value;
} errors[] = {
#define ERROR(name)                                                                                \
    { #name, name }
    ERROR(EPERM),      ERROR(ENOENT),    ERROR(EINTR),  ERROR(EIO),    ERROR(EBADF),
    ERROR(EAGAIN),     ERROR(ENOMEM),    ERROR(EACCES), ERROR(EFAULT), ERROR(EBUSY),
    ERROR(ENODEV),     ERROR(EINVAL),    ERROR(ENOSPC), ERROR(ENOSYS), ERROR(EOVERFLOW),
    ERROR(EOPNOTSUPP), ERROR(ETIMEDOUT),
#undef ERROR
};

/* What a text asks for; nothing is changed before all of it is understood. */
struct plan {
    uint64_t values[NUMBERS];
    bool has_value[NUMBERS];
    bool has_slow_len;
    uint64_t slow_len, slow_len_us;
    struct sim_rule rules[SIM_MAX_RULES];
    size_t rule_count;
    int restart;
    char report[sizeof(sim_report_path)];
};

static void print_line(const char *format, va_list arguments) {
    char line[512];
    int length = snprintf(line, sizeof(line), "simulated RDMA device: ");
    ssize_t written;

    length += vsnprintf(line + length, sizeof(line) - (size_t)length - 1, format, arguments);
    if (length > (int)sizeof(line) - 2)
        length = (int)sizeof(line) - 2;
    line[length++] = '\n';
    written = write(STDERR_FILENO, line, (size_t)length);
    (void)written; /* there is nowhere left to complain */
}

void sim_exit_line(const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    print_line(format, arguments);
    va_end(arguments);
    _exit(2);
}

void sim_abort_line(const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    print_line(format, arguments);
    va_end(arguments);
    abort();
}

void sim_feature_set(uint32_t feature, bool on) {
    if (on)
        atomic_fetch_or(&sim_features, feature);
    else
        atomic_fetch_and(&sim_features, ~feature);
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* A number, with k, m or g for powers of 1024. Moves the text on; false if there is none. */
static bool read_number(const char **text, uint64_t max, uint64_t *value) {
    static const char suffixes[] = "kmg";
    const char *suffix;
    unsigned shift = 0;
    char *end;

    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    *value = strtoull(*text, &end, 10);
    if (errno != 0)
        return false;
    suffix = *end != '\0' ? strchr(suffixes, *end | 0x20) : NULL;
    if (suffix != NULL) {
        shift = 10 * (unsigned)(suffix - suffixes + 1);
        end++;
    }
    if (*value > max >> shift)
        return false;
    *value <<= shift;
    *text = end;
    return true;
}

static bool read_error(const char **text, uint64_t *value) {
    size_t length = strcspn(*text, ",:");

    if (read_number(text, 4095, value))
        return true;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (strlen(errors[i].name) == length && strncasecmp(*text, errors[i].name, length) == 0) {
            *value = (uint64_t)errors[i].value;
            *text += length;
            return true;
        }
    }
    return false;
}

/* N:VALUE, as in fail_nth=3:ENOMEM. A failure without value is ENOMEM. */
static bool read_rule(const char *key, const char *text, struct plan *plan) {
    struct sim_rule rule = {.kind = SIM_REG, .value = ENOMEM};
    uint64_t number;

    if (strncmp(key, "dereg_", 6) == 0) {
        rule.kind = SIM_DEREG;
        rule.value = EBUSY;
        key += 6;
    }
    rule.is_delay = strcmp(key, "delay_nth") == 0;
    if (!read_number(&text, UINT64_MAX - 1, &number) || plan->rule_count == SIM_MAX_RULES)
        return false;
    if (strcmp(key, "fail_after") == 0) {
        rule.first = number + 1;
        rule.last = UINT64_MAX;
    } else if (strcmp(key, "fail_first") == 0) {
        rule.first = 1;
        rule.last = number;
    } else if (strcmp(key, "fail_nth") == 0 || rule.is_delay) {
        rule.first = rule.last = number;
    } else {
        return false;
    }
    if (*text == ':') {
        text++;
        if (!(rule.is_delay ? read_number(&text, UINT32_MAX, &rule.value)
                            : read_error(&text, &rule.value)))
            return false;
    } else if (rule.is_delay) {
        return false;
    }
    /* A deregistration returns its errno value: it cannot fail with 0. */
    if (*text != '\0' || (rule.kind == SIM_DEREG && !rule.is_delay && rule.value == 0))
        return false;
    plan->rules[plan->rule_count++] = rule;
    plan->restart |= rule.kind;
    return true;
}

static bool read_slow_len(const char *text, struct plan *plan) {
    plan->has_slow_len = read_number(&text, UINT64_MAX, &plan->slow_len) && *text++ == ':' &&
                         read_number(&text, UINT32_MAX, &plan->slow_len_us) && *text == '\0';
    return plan->has_slow_len;
}

static bool read_flag_or_number(const char *key, const char *text, struct plan *plan) {
    for (size_t i = 0; i < NUMBERS; i++) {
        if (strcmp(numbers[i].name, key) != 0)
            continue;
        plan->has_value[i] = true;
        if (text != NULL)
            return read_number(&text, numbers[i].max, &plan->values[i]) && *text == '\0';
        plan->values[i] = 1;
        return numbers[i].max == 1; /* only a switch can go without value */
    }
    return false;
}

/* One KEY or KEY=VALUE. */
static bool read_item(const char *item, struct plan *plan) {
    char key[32];
    const char *text = strchr(item, '=');
    size_t length = text != NULL ? (size_t)(text - item) : strlen(item);

    if (length >= sizeof(key))
        return false;
    memcpy(key, item, length);
    key[length] = '\0';
    if (text != NULL)
        text++;
    /* Short for both kinds at once. */
    if (strcmp(key, "delay_us") == 0)
        return text != NULL && read_flag_or_number("reg_delay_us", text, plan) &&
               read_flag_or_number("dereg_delay_us", text, plan);
    if (text != NULL && strcmp(key, "slow_len") == 0)
        return read_slow_len(text, plan);
    if (text != NULL && strcmp(key, "report") == 0)
        return *text != '\0' &&
               snprintf(plan->report, sizeof(plan->report), "%s", text) < (int)PATH_MAX;
    if (text != NULL && (strstr(key, "fail_") != NULL || strstr(key, "delay_nth") != NULL))
        return read_rule(key, text, plan);
    return read_flag_or_number(key, text, plan);
}

/* Returns the item that is wrong, or NULL. The text is cut into pieces. */
static const char *read_settings(char *text, struct plan *plan) {
    memset(plan, 0, sizeof(*plan));
    for (char *item = text, *next; item != NULL; item = next) {
        next = strchr(item, ',');
        if (next != NULL)
            *next++ = '\0';
        if (*item != '\0' && !read_item(item, plan))
            return item;
    }
    return NULL;
}

/* ---- Applying -------------------------------------------------------------------------------- */

static _Atomic uint64_t *setting(size_t i) {
    return (_Atomic uint64_t *)(void *)((char *)&sim_settings + numbers[i].offset);
}

static void update_features(void) {
    bool limited = sim_get(&sim_settings.max_mr) != 0;
    bool delayed = sim_get(&sim_settings.reg_delay_us) != 0 ||
                   sim_get(&sim_settings.dereg_delay_us) != 0 ||
                   sim_get(&sim_settings.slow_len) != 0;

    if (limited && !(atomic_load(&sim_features) & SIM_FEATURE_MAX_MR))
        sim_max_mr_restart();
    sim_feature_set(SIM_FEATURE_MAX_MR, limited);
    sim_feature_set(SIM_FEATURE_DELAY, delayed);
    sim_feature_set(SIM_FEATURE_CLOBBER, sim_get(&sim_settings.clobber));
    sim_feature_set(SIM_FEATURE_RECORD, sim_get(&sim_settings.record));
    sim_feature_set(SIM_FEATURE_PEAK, sim_get(&sim_settings.peak));
}

static bool apply(const struct plan *plan) {
    if (!sim_rules_add(plan->rules, plan->rule_count, plan->restart))
        return false;
    for (size_t i = 0; i < NUMBERS; i++) {
        if (!plan->has_value[i])
            continue;
        /* The peak is a counter that all threads share: too slow for the device of benchmarks,
         * unless the same text asks for it. */
        if (setting(i) == &sim_settings.pins)
            atomic_store(&sim_settings.peak, plan->values[i]);
        atomic_store(setting(i), plan->values[i]);
    }
    if (plan->has_slow_len) {
        atomic_store(&sim_settings.slow_len, plan->slow_len);
        atomic_store(&sim_settings.slow_len_us, plan->slow_len_us);
    }
    update_features();
    return true;
}

static void apply_environment(void) {
    const char *environment = getenv("AMR_SIM");
    struct plan plan;
    const char *wrong;
    char *text;

    for (size_t i = 0; i < NUMBERS; i++)
        atomic_store(setting(i), numbers[i].initial);
    atomic_store(&sim_settings.slow_len, 0);
    text = strdup(environment != NULL ? environment : "");
    if (text == NULL)
        sim_abort_line("out of memory");
    wrong = read_settings(text, &plan);
    if (wrong != NULL)
        sim_exit_line("AMR_SIM: '%s' is not understood", wrong);
    if (!apply(&plan))
        sim_exit_line("AMR_SIM: more than %d rules", SIM_MAX_RULES);
    memcpy(sim_report_path, plan.report, sizeof(sim_report_path));
    free(text);
}

void sim_control_start(void) {
    apply_environment();
}

SIM_EXPORT int sim_configure(const char *settings) {
    struct plan plan;
    char *text = strdup(settings);
    bool done;

    if (text == NULL)
        sim_abort_line("out of memory");
    /* The report belongs to the whole process: only the environment can ask for it. */
    done = read_settings(text, &plan) == NULL && plan.report[0] == '\0' && apply(&plan);
    free(text);
    return done ? 0 : EINVAL;
}

SIM_EXPORT void sim_reset(void) {
    sim_gate_open();
    sim_rules_clear();
    apply_environment();
    sim_record_restart();
    sim_count_restart();
    sim_peak_restart();
}

SIM_EXPORT void sim_record(int on) {
    if (on)
        sim_record_restart();
    atomic_store(&sim_settings.record, on != 0);
    sim_feature_set(SIM_FEATURE_RECORD, on != 0);
}

SIM_EXPORT int sim_wait_running(unsigned count, int timeout_ms) {
    static const struct timespec pause = {0, 50000};
    uint64_t end_ns = sim_now_ns() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000000u;

    while (sim_count_sum(SIM_COUNT_RUNNING) < count) {
        if (timeout_ms >= 0 && sim_now_ns() >= end_ns)
            return ETIMEDOUT;
        nanosleep(&pause, NULL);
    }
    return 0;
}

SIM_EXPORT void sim_get_counts(struct sim_counts *counts) {
    *counts = (struct sim_counts){
        .reg_calls = sim_count_sum(SIM_COUNT_REG),
        .reg_failed = sim_count_sum(SIM_COUNT_REG_FAILED),
        .dereg_calls = sim_count_sum(SIM_COUNT_DEREG),
        .dereg_failed = sim_count_sum(SIM_COUNT_DEREG_FAILED),
        .live_contexts = atomic_load(&sim_live_contexts),
        .live_pds = atomic_load(&sim_live_pds),
        .live_mrs = sim_live_mrs(),
        .live_cqs = atomic_load(&sim_live_cqs),
        .live_qps = atomic_load(&sim_live_qps),
        .pinned_bytes = sim_pinned_bytes(),
        .running = sim_count_sum(SIM_COUNT_RUNNING),
        .peak_running = sim_peak_running(),
        .calls_after_exit = sim_exit_late_calls(),
    };
}
