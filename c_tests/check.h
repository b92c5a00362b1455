/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a test says and how it ends: exit status 0 passed, 1 failed, 77 skipped.
 *
 * To be included first. Works from C11 and C++11.
 */
#ifndef AMR_CHECK_H
#define AMR_CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether this is a build with a sanitizer, which uses memory and mappings of its own. */
#define SANITIZED 0
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#undef SANITIZED
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#undef SANITIZED
#define SANITIZED 1
#endif

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/*
 * A failed check ends the process at once, on whatever thread it is: other threads may be stuck in
 * the very defect that was found, so nothing is torn down.
 */
__attribute__((noreturn, format(printf, 3, 4))) static inline void
check_failed(const char *file, int line, const char *format, ...) {
    va_list args;

    va_start(args, format);
    fflush(stdout);
    fprintf(stderr, "%s:%d: check failed: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    _exit(1);
}

static inline void check_eq(const char *file, int line, const char *expression, long long actual,
                            long long expected) {
    if (actual != expected)
        check_failed(file, line, "%s (%lld, expected %lld)", expression, actual, expected);
}

static inline void check_str(const char *file, int line, const char *expression, const char *actual,
                             const char *expected) {
    if (actual == NULL || strcmp(actual, expected) != 0)
        check_failed(file, line, "%s (\"%s\", expected \"%s\")", expression,
                     actual != NULL ? actual : "NULL", expected);
}

#define FAIL(...) check_failed(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            check_failed(__FILE__, __LINE__, "%s", #condition);                                    \
    } while (0)

/* For integers of any type. */
#define CHECK_EQ(actual, expected)                                                                 \
    check_eq(__FILE__, __LINE__, #actual " == " #expected, (long long)(actual),                    \
             (long long)(expected))

#define CHECK_STR(actual, expected)                                                                \
    check_str(__FILE__, __LINE__, #actual " == " #expected, actual, expected)

__attribute__((noreturn, format(printf, 1, 2))) static inline void skip(const char *format, ...) {
    va_list args;

    va_start(args, format);
    fputs("skipped: ", stdout);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
    exit(77);
}

#endif /* AMR_CHECK_H */
