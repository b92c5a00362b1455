/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program that runs with more rights than its caller has (set-user-ID, set-group-ID,
 * capabilities: AT_SECURE) does not look at AMR_*, which are the caller's. Runs a set-group-ID copy
 * of itself.
 */
#include "device.h"
#include "process.h"

#include <limits.h>
#include <sys/auxv.h>
#include <sys/stat.h>

enum { OBEYED = 1, IGNORED = 2, NOT_SECURE = 3 };

/* Needs no device, and the loader does not look at LD_LIBRARY_PATH here, either. */
static int what_it_does(void) {
    struct amr_engine *engine;
    struct amr_stats stats;

    if (getauxval(AT_SECURE) == 0)
        return NOT_SECURE;
    engine = amr_create_engine(NULL);
    CHECK(engine != NULL);
    stats = stats_of(engine);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    return stats.workers == 13 || stats.queue_depth == 64 ? OBEYED : IGNORED;
}

static void copy_program(char *path, size_t size) {
    ssize_t length = readlink("/proc/self/exe", path, size - 16);
    char block[65536];
    FILE *from, *to;
    int fd;

    CHECK(length > 0);
    strcpy(path + length, "-XXXXXX");
    fd = mkstemp(path);
    if (fd < 0)
        skip("no right to write where the program is");
    from = fopen("/proc/self/exe", "re");
    to = fdopen(fd, "w");
    CHECK(from != NULL && to != NULL);
    while ((length = (ssize_t)fread(block, 1, sizeof(block), from)) > 0)
        CHECK_EQ(fwrite(block, 1, (size_t)length, to), length);
    fclose(from);
    /* In this order: a new owner takes the bit away. */
    if (fchown(fd, (uid_t)-1, 54321) != 0 || fchmod(fd, 02755) != 0) {
        unlink(path);
        skip("only root can give a program away");
    }
    CHECK_EQ(fclose(to), 0);
}

int main(int argc, char **argv) {
    char path[PATH_MAX], text[256];
    int out[2], status;
    ssize_t length;
    pid_t child;

    (void)argv;
    if (argc > 1)
        return what_it_does();
    copy_program(path, sizeof(path));
    CHECK_EQ(pipe(out), 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(out[1], STDERR_FILENO);
        close(out[0]);
        close(out[1]);
        setenv("AMR_WORKERS", "13", 1);
        setenv("AMR_QUEUE_DEPTH", "64", 1);
        setenv("AMR_LOG", "debug", 1);
        setenv("AMR_CPUS", "what?", 1);
        execl(path, path, "secure", (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    status = wait_child(child);
    length = read(out[0], text, sizeof(text) - 1);
    unlink(path);
    CHECK(length >= 0);
    text[length] = '\0';
    if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_SECURE)
        skip("this file system knows no set-group-ID");
    CHECK_STR(text, "");
    CHECK_EQ(status, IGNORED << 8);
    return 0;
}
