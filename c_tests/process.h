/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What /proc tells of this process, and children. */
#ifndef AMR_PROCESS_H
#define AMR_PROCESS_H

#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>

static inline int count_entries(const char *folder) {
    DIR *dir = opendir(folder);
    int count = 0;

    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.')
            count++;
    closedir(dir);
    return count;
}

/* The folder's own descriptor is counted each time. */
static inline int count_fds(void) {
    return count_entries("/proc/self/fd");
}

static inline int count_tasks(void) {
    return count_entries("/proc/self/task");
}

/* A thread that was joined is listed for a moment more. */
static inline void wait_tasks(int count) {
    while (count_tasks() != count)
        usleep(100);
}

/* Threads of the library; others may come from a sanitizer. */
static inline int count_workers(void) {
    DIR *dir = opendir("/proc/self/task");
    int count = 0;

    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[300], name[5] = "";
        FILE *file;

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        file = fopen(path, "re");
        if (file == NULL)
            continue;
        if (fgets(name, sizeof(name), file) != NULL && strcmp(name, "amr-") == 0)
            count++;
        fclose(file);
    }
    closedir(dir);
    return count;
}

static inline void wait_workers(int count) {
    while (count_workers() != count)
        usleep(100);
}

/* Waits until a thread of this process sleeps in a system call. */
static inline void wait_asleep(pid_t thread) {
    char path[64], line[256], state;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
    for (;;) {
        FILE *file = fopen(path, "re");

        CHECK(file != NULL);
        CHECK(fgets(line, sizeof(line), file) != NULL);
        fclose(file);
        CHECK(strrchr(line, ')') != NULL);
        state = strrchr(line, ')')[2];
        if (state == 'S')
            return;
        usleep(100);
    }
}

/* A field of /proc/self/status in its own unit. */
static inline long status_field(const char *name) {
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    long value = -1;

    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            value = atol(line + strlen(name) + 1);
    fclose(file);
    CHECK(value >= 0);
    return value;
}

/*
 * The end of a child. It has its parent's memory but not the stacks of its threads, so that a leak
 * checker would err there.
 */
__attribute__((noreturn)) static inline void exit_child(int status) {
    if (SANITIZED)
        _exit(status);
    exit(status);
}

static inline int wait_child(pid_t child) {
    int status;

    while (waitpid(child, &status, 0) != child)
        CHECK_EQ(errno, EINTR);
    return status;
}

/* For a child that reports by check.h. */
static inline void check_child(pid_t child) {
    int status = wait_child(child);

    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        FAIL("child process: wait status %#x", status);
}

/*
 * The kernel counts pinned memory and threads for all processes of a user, so an unprivileged test
 * becomes a user of its own. It gets no file back that only root may open.
 */
static inline void become_nobody(void) {
    uid_t uid = 20000 + (uid_t)getpid() % 40000;

    if (geteuid() != 0)
        return;
    if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0)
        skip("cannot become an unprivileged user");
}

/* How this program ended when it ran again, and what it printed. */
struct run {
    int status; /* as from waitpid() */
    char out[8192];
    char err[8192];
};

static inline void read_back(int fd, char *text, size_t size) {
    ssize_t length = pread(fd, text, size - 1, 0);

    CHECK(length >= 0);
    text[length] = '\0';
    close(fd);
}

/*
 * Runs this program with an argument and more environment, a list of "NAME=value" that ends with
 * NULL. It is killed if it takes longer than any machine would need.
 */
static inline struct run run_self(const char *mode, const char *const *environment) {
    struct run run;
    int out = memfd_create("stdout", MFD_CLOEXEC);
    int err = memfd_create("stderr", MFD_CLOEXEC);
    pid_t child;

    CHECK(out >= 0 && err >= 0);
    fflush(NULL);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (; *environment != NULL; environment++) {
            char *name = strdup(*environment);

            CHECK(name != NULL && strchr(name, '=') != NULL);
            *strchr(name, '=') = '\0';
            setenv(name, *environment + strlen(name) + 1, 1);
        }
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        alarm(60);
        execl("/proc/self/exe", program_invocation_name, mode, (char *)NULL);
        FAIL("execl: %s", strerror(errno));
    }
    run.status = wait_child(child);
    read_back(out, run.out, sizeof(run.out));
    read_back(err, run.err, sizeof(run.err));
    if (WIFSIGNALED(run.status) && WTERMSIG(run.status) == SIGALRM)
        FAIL("%s does not end", mode);
    return run;
}

#endif /* AMR_PROCESS_H */
