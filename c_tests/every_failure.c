/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Every allocation and every system call of the library that can fail is made to fail: the nth
 * alone, and all from the nth on, for each n there is. Always: an errno that fits, one completion
 * for each request that was taken, no leak of memory, threads, descriptors or regions, and no end
 * of the process. The functions are those of this program, which come before those of the C
 * library.
 */
#include "device.h"
#include "process.h"

#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>

/* ---- What is made to fail -------------------------------------------------------------------- */

enum kind {
    ALLOCATION,
    MAPPING,
    THREAD,
    EVENTFD,
    OPEN,
    READ,
    RESIDENCY,
    AFFINITY,
    EXIT_HANDLER,
    NAMING,
    KINDS,
    FORK_HANDLER = KINDS,
    FILES
};

static const char *const kinds[] = {"allocation",
                                    "mmap",
                                    "pthread_create",
                                    "eventfd",
                                    "open",
                                    "read",
                                    "mincore, madvise, ioctl",
                                    "sched_[gs]etaffinity",
                                    "exit handler",
                                    "prctl",
                                    "fork handler",
                                    "stat, statfs, statx"};

struct range {
    uintptr_t begin, end;
};

/* Of libamr, and of the simulated device, which does not do without memory. */
static struct range library, simulation;
static enum kind failing;
static long first, last;       /* calls of that kind fail from the first to the last one */
static size_t most = SIZE_MAX; /* larger allocations do not */
static long calls;             /* atomic: of that kind so far */
static long blocks_held;       /* atomic: allocated by the library and not freed by it */
static __thread int spared;

/* Asked with the address that the call returns to. */
static int is_in(const struct range *range, const void *address) {
    return range->begin <= (uintptr_t)address && (uintptr_t)address < range->end;
}

static int is_library(const void *address) {
    return is_in(&library, address);
}

static int fails(enum kind kind) {
    long number;

    if (kind != failing || first == 0)
        return 0;
    number = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    return number >= first && number <= last;
}

#define CALLER __builtin_return_address(0)

static int allocation_fails(size_t size, const void *caller) {
    return size <= most && !spared && !is_in(&simulation, caller) && fails(ALLOCATION);
}

/* Frees are counted whoever made the block, so only the balance at rest means anything. */
static void *counted(void *block, const void *caller) {
    if (block != NULL && is_library(caller))
        __atomic_add_fetch(&blocks_held, 1, __ATOMIC_RELAXED);
    return block;
}

/* The allocator below this one; valgrind puts its own in the place of the C library's. */
#if SANITIZED
#define BELOW(function) __interceptor_##function
#else
#define BELOW(function) __libc_##function
#endif

void *BELOW(malloc)(size_t size);
void *BELOW(calloc)(size_t count, size_t size);
void *BELOW(realloc)(void *block, size_t size);
void *BELOW(memalign)(size_t alignment, size_t size);
void BELOW(free)(void *block);

static void *no_memory(void) {
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t size) {
    return allocation_fails(size, CALLER) ? no_memory() : counted(BELOW(malloc)(size), CALLER);
}

void *calloc(size_t count, size_t size) {
    return allocation_fails(count * size, CALLER) ? no_memory()
                                                  : counted(BELOW(calloc)(count, size), CALLER);
}

void *realloc(void *block, size_t size) {
    if (allocation_fails(size, CALLER))
        return no_memory();
    return block != NULL ? BELOW(realloc)(block, size) : counted(BELOW(malloc)(size), CALLER);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return allocation_fails(size, CALLER) ? no_memory()
                                          : counted(BELOW(memalign)(alignment, size), CALLER);
}

int posix_memalign(void **block, size_t alignment, size_t size) {
    void *found =
        allocation_fails(size, CALLER) ? NULL : counted(BELOW(memalign)(alignment, size), CALLER);

    if (found == NULL)
        return ENOMEM;
    *block = found;
    return 0;
}

void free(void *block) {
    if (block != NULL && is_library(CALLER))
        __atomic_sub_fetch(&blocks_held, 1, __ATOMIC_RELAXED);
    BELOW(free)(block);
}

#define NEXT(function, name)                                                                       \
    do {                                                                                           \
        if ((function) == NULL) {                                                                  \
            void *symbol_ = dlsym(RTLD_NEXT, name);                                                \
            memcpy(&(function), &symbol_, sizeof(function));                                       \
        }                                                                                          \
    } while (0)

/* AddressSanitizer asks each thread for its stack, and ends the process if it gets no answer. */
int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr) {
    static int (*next)(pthread_t, pthread_attr_t *);
    int status;

    NEXT(next, "pthread_getattr_np");
    spared = 1;
    status = next(thread, attr);
    spared = 0;
    return status;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*routine)(void *),
                   void *arg) {
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

    NEXT(next, "pthread_create");
    return is_library(CALLER) && fails(THREAD) ? EAGAIN : next(thread, attr, routine, arg);
}

/* A function that says so by `failure` and errno. */
#define FAILS(kind, error, failure, type, name, parameters, arguments)                             \
    type name parameters {                                                                         \
        static type(*next) parameters;                                                             \
                                                                                                   \
        NEXT(next, #name);                                                                         \
        if (!is_library(CALLER) || !fails(kind))                                                   \
            return next arguments;                                                                 \
        errno = error;                                                                             \
        return failure;                                                                            \
    }

FAILS(MAPPING, ENOMEM, MAP_FAILED, void *, mmap,
      (void *address, size_t length, int protection, int flags, int fd, off_t offset),
      (address, length, protection, flags, fd, offset))
FAILS(EVENTFD, EMFILE, -1, int, eventfd, (unsigned count, int flags), (count, flags))
FAILS(READ, EIO, -1, ssize_t, read, (int fd, void *bytes, size_t size), (fd, bytes, size))
FAILS(RESIDENCY, EAGAIN, -1, int, mincore, (void *address, size_t length, unsigned char *pages),
      (address, length, pages))
FAILS(RESIDENCY, EAGAIN, -1, int, madvise, (void *address, size_t length, int advice),
      (address, length, advice))
FAILS(AFFINITY, EPERM, -1, int, sched_getaffinity, (pid_t pid, size_t size, cpu_set_t *mask),
      (pid, size, mask))
FAILS(AFFINITY, EPERM, -1, int, sched_setaffinity, (pid_t pid, size_t size, const cpu_set_t *mask),
      (pid, size, mask))

FAILS(FILES, EACCES, -1, int, stat64, (const char *path, struct stat64 *found), (path, found))
FAILS(FILES, EACCES, -1, int, statfs, (const char *path, struct statfs *found), (path, found))
FAILS(FILES, EACCES, -1, int, statx,
      (int folder, const char *path, int flags, unsigned mask, struct statx *found),
      (folder, path, flags, mask, found))

int prctl(int option, ...) {
    static int (*next)(int, ...);
    unsigned long arguments[4];
    va_list args;

    NEXT(next, "prctl");
    if (is_library(CALLER) && fails(NAMING)) {
        errno = EPERM;
        return -1;
    }
    va_start(args, option);
    for (int i = 0; i < 4; i++)
        arguments[i] = va_arg(args, unsigned long);
    va_end(args);
    return next(option, arguments[0], arguments[1], arguments[2], arguments[3]);
}

int ioctl(int fd, unsigned long request, ...) {
    static int (*next)(int, unsigned long, ...);
    va_list args;
    void *arg;

    NEXT(next, "ioctl");
    if (is_library(CALLER) && fails(RESIDENCY)) {
        errno = ENOTTY;
        return -1;
    }
    va_start(args, request);
    arg = va_arg(args, void *);
    va_end(args);
    return next(fd, request, arg);
}

int open64(const char *path, int flags, ...) {
    static int (*next)(const char *, int, ...);
    va_list args;
    mode_t mode;

    NEXT(next, "open64");
    if (is_library(CALLER) && fails(OPEN)) {
        errno = ENFILE;
        return -1;
    }
    va_start(args, flags);
    mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return next(path, flags, mode);
}

int __cxa_atexit(void (*function)(void *), void *arg, void *object);
int __cxa_atexit(void (*function)(void *), void *arg, void *object) {
    static int (*next)(void (*)(void *), void *, void *);

    NEXT(next, "__cxa_atexit");
    return is_library(CALLER) && fails(EXIT_HANDLER) ? -1 : next(function, arg, object);
}

static int find_libraries(struct dl_phdr_info *info, size_t size, void *arg) {
    int is_simulation = strstr(info->dlpi_name, "/libibverbs.so") != NULL;
    struct range *range = is_simulation ? &simulation : &library;

    (void)size, (void)arg;
    if (!is_simulation && strstr(info->dlpi_name, "/libamr.so") == NULL)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

        if (segment->p_type != PT_LOAD)
            continue;
        if (range->begin == 0)
            range->begin = info->dlpi_addr + segment->p_vaddr;
        range->end = info->dlpi_addr + segment->p_vaddr + segment->p_memsz;
    }
    return 0;
}

/* The library is to hear of forks from the first one on, so it asks when it is loaded. */
#define FAILS_AT_LOAD "AMR_TEST_FAILS_AT_LOAD"

static void fail_from(enum kind kind, long from, long to) {
    failing = kind;
    last = to;
    calls = 0;
    first = from;
}

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *);
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void *object) {
    static int (*next)(void (*)(void), void (*)(void), void (*)(void), void *);

    NEXT(next, "__register_atfork");
    if (library.begin == 0 && getenv(FAILS_AT_LOAD) != NULL) {
        dl_iterate_phdr(find_libraries, NULL);
        fail_from(FORK_HANDLER, 1, LONG_MAX);
    }
    return is_library(CALLER) && fails(FORK_HANDLER) ? ENOMEM
                                                     : next(prepare, parent, child, object);
}

/* ---- What is done meanwhile ------------------------------------------------------------------ */

enum { REQUESTS = 4, LARGE = 6 << 20 };

static struct device device;
static char *buffer;

/* errno after a call that makes something; the injected failures come out as these. */
static void check_errno(void) {
    if (errno != ENOMEM && errno != EAGAIN && errno != EMFILE && errno != EPERM)
        FAIL("%s %ld to %ld: errno %d", kinds[failing], first, last, errno);
}

static void check_status(int status) {
    if (status != 0 && status != ENOMEM)
        FAIL("%s %ld to %ld: status %d", kinds[failing], first, last, status);
}

/* Each request that was taken completes once. */
static void collect(struct amr_cq *cq, struct amr_wc *wcs, int count) {
    unsigned seen = 0;

    read_wcs(cq, wcs, count);
    for (int i = 0; i < count; i++) {
        char text[512];

        CHECK(wcs[i].wr_id < REQUESTS);
        CHECK((seen & 1U << wcs[i].wr_id) == 0);
        seen |= 1U << wcs[i].wr_id;
        check_status(wcs[i].status);
        CHECK(amr_explain(&wcs[i], text, sizeof(text)) > 0);
    }
    check_empty(cq);
}

/* The library tries again, which asks for no memory; the device asks for some here. */
static void fail_next_dereg(void) {
    long before = first;

    first = 0;
    CHECK_EQ(sim_configure("dereg_fail_nth=1:EAGAIN"), 0);
    first = before;
}

static void use_queue(struct amr_engine *engine, struct amr_cq *cq) {
    struct amr_limits limits = {.size = sizeof(limits)};
    struct amr_wc wcs[REQUESTS];

    CHECK(amr_cq_fd(cq) >= 0);
    /* The last one is faulted in first. */
    CHECK_EQ(madvise(buffer, LARGE, MADV_DONTNEED), 0);
    for (uint64_t i = 0; i < REQUESTS; i++) {
        struct amr_wr wr = reg_wr(i, device.pd, buffer, i < REQUESTS - 1 ? PAGE : LARGE, ACCESS);

        wr.flags = AMR_WR_HUGEPAGE;
        post(cq, wr);
    }
    collect(cq, wcs, REQUESTS);
    for (int i = 0, posted = 0; i < REQUESTS; i++) {
        struct amr_wc wc;

        if (wcs[i].status != 0)
            continue;
        if (posted++ == 0)
            fail_next_dereg();
        post(cq, dereg_wr(wcs[i].wr_id, wcs[i].mr));
        wc = read_wc(cq);
        CHECK_EQ(wc.status, 0);
    }
    CHECK_EQ(amr_query_limits(device.context, &limits), 0);
    CHECK_EQ(stats_of(engine).queued, 0);
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
}

static void own_engine(void) {
    struct amr_engine_attr attr = {
        .size = sizeof(attr), .workers = 3, .queue_depth = 64, .cpus = "0"};
    struct amr_engine *engine = amr_create_engine(&attr);
    struct amr_cq *cq;

    if (engine == NULL) {
        check_errno();
        return;
    }
    cq = amr_create_cq(engine, 8);
    if (cq == NULL) {
        check_errno();
    } else {
        use_queue(engine, cq);
        CHECK_EQ(amr_destroy_cq(cq), 0);
    }
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

static int heard; /* atomic */

static void on_done(struct ibv_mr *mr, int status, void *ctx) {
    (void)ctx;
    check_status(status);
    if (mr != NULL)
        CHECK_EQ(ibv_dereg_mr(mr), 0);
    __atomic_add_fetch(&heard, 1, __ATOMIC_RELEASE);
}

/* On the default engine, which lives as long as the process: a later call tries again. */
static void default_engine(void) {
    int taken = 0;

    for (int i = 0; i < REQUESTS; i++) {
        int status = amr_register_async(device.pd, buffer, PAGE, ACCESS, on_done, NULL);

        if (status == 0)
            taken++;
        else if (status != ENOMEM && status != EAGAIN)
            FAIL("%s %ld to %ld: %d", kinds[failing], first, last, status);
    }
    if (taken > 0)
        CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    CHECK_EQ(heard, taken);
    heard = 0;
    if (last == first)
        CHECK(taken >= REQUESTS - 1);
}

/* ---- The test -------------------------------------------------------------------------------- */

static void check_nothing_left(int fds, long blocks) {
    wait_workers(0);
    CHECK_EQ(count_fds(), fds);
    CHECK_EQ(sim_counts().live_mrs, 0);
    if (blocks_held != blocks)
        FAIL("%s %ld to %ld: %ld blocks are left", kinds[failing], first, last,
             blocks_held - blocks);
}

/* In one process, so that what is made once is made already. */
static long every_call(enum kind kind, int all) {
    long blocks = blocks_held, number = 1;
    int fds = count_fds();

    for (int more = 1; more; number++) {
        fail_from(kind, number, all ? LONG_MAX : number);
        own_engine();
        more = calls >= number;
        first = 0;
        reset_sim();
        check_nothing_left(fds, blocks);
    }
    return number - 2;
}

/* Each in a process of its own, where everything is made for the first time. */
static long every_first_call(enum kind kind, int all) {
    long number = 1;

    for (int more = 1; more; number++) {
        pid_t child;
        int status;

        fflush(NULL);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            fail_from(kind, number, all ? LONG_MAX : number);
            default_engine();
            own_engine();
            more = calls >= number;
            first = 0;
            if (sim_counts().live_mrs != 0)
                FAIL("a region is left");
            exit(more ? 10 : 11);
        }
        status = wait_child(child);
        if (status != 10 << 8 && status != 11 << 8)
            FAIL("%s %ld%s: wait status %#x", kinds[kind], number, all ? " and all later" : "",
                 status);
        more = status == 10 << 8;
    }
    return number - 2;
}

/* Runs a function in a process of its own, which ends as the function does. */
static void in_child(void (*function)(void)) {
    pid_t child;

    fflush(NULL);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        function();
        exit(0);
    }
    check_child(child);
}

/* ---- What asks for more where there is more ----------------------------------------------------
 */

enum { LONG = 8192, ENGINES = 600, CALLERS = 40 };

static void set_long(const char *name, char fill, const char *end) {
    char value[LONG + 1];

    memset(value, fill, LONG);
    value[LONG] = '\0';
    memcpy(value + LONG - strlen(end), end, strlen(end));
    CHECK_EQ(setenv(name, value, 1), 0);
}

/* Values that are long and good, for all that follows. */
static void long_environment(void) {
    set_long("AMR_QUEUE_DEPTH", ' ', "64");
    set_long("AMR_WORKERS", '0', "2");
}

/* Such that are bad are complained of, in a line for each. */
static void bad_environment(void) {
    static const char *const names[] = {"AMR_WORKERS",  "AMR_QUEUE_DEPTH", "AMR_CPUS",
                                        "AMR_PREFAULT", "AMR_HUGEPAGE",    "AMR_LOG"};
    int shown = dup(STDERR_FILENO), written = memfd_create("stderr", MFD_CLOEXEC);
    char text[LONG], *line = text;

    CHECK(shown >= 0 && written >= 0);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        set_long(names[i], '\x81', "");
    CHECK_EQ(dup2(written, STDERR_FILENO), STDERR_FILENO);
    fail_from(ALLOCATION, 1, LONG_MAX);
    own_engine();
    first = 0;
    CHECK_EQ(dup2(shown, STDERR_FILENO), STDERR_FILENO);
    read_back(written, text, sizeof(text));
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strncmp(line, "amr: ", 5) != 0 || strncmp(line + 5, names[i], strlen(names[i])) != 0)
            FAIL("complaint %s of %s", line, names[i]);
        line = strchr(line, '\n');
        CHECK(line++ != NULL);
    }
    CHECK_STR(line, "");
}

/* Exit ends them all. */
static void many_engines(void) {
    static struct amr_engine *engines[ENGINES]; /* known to the end, so that none is leaked */

    for (int i = 0; i < ENGINES; i++)
        engines[i] = new_engine(1, 1);
    CHECK_EQ(stats_of(engines[ENGINES - 1]).submitted, 0);
    fail_from(ALLOCATION, 1, LONG_MAX);
}

/*
 * The diagnosis looks at a file, which has a longer path than the kernel takes, and a name that is
 * not UTF-8.
 */
static void long_path(void) {
    char name[201];
    struct amr_cq *cq = new_cq(NULL, 1);
    struct amr_wc wc;
    char *pages;
    int fd;

    memset(name, 'd', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    for (int i = 0; i < 25; i++) {
        CHECK_EQ(mkdir(name, 0700), 0);
        CHECK_EQ(chdir(name), 0);
    }
    fd = open("\xe4", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(ftruncate(fd, (off_t)PAGE), 0);
    pages = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(pages != MAP_FAILED);
    CHECK_EQ(unlink("\xe4"), 0);
    for (int i = 0; i < 25; i++) {
        CHECK_EQ(chdir(".."), 0);
        CHECK_EQ(rmdir(name), 0);
    }
    CHECK_EQ(sim_configure("pins=0,fail_nth=1:EFAULT"), 0);
    fail_from(ALLOCATION, 1, LONG_MAX);
    post_reg(cq, 0, device.pd, pages, PAGE);
    wc = read_wc(cq);
    first = 0;
    CHECK_EQ(wc.status, EFAULT);
    CHECK_EQ(wc.diag, AMR_DIAG_UNPINNABLE);
    CHECK_EQ(wc.diag_arg, (uintptr_t)pages);
    CHECK_EQ(amr_destroy_cq(cq), 0);
}

/* A file cannot be looked at: the registration fails as it does, whatever is said about it. */
static void mapped_file(void) {
    static const char name[] = "every_failure.mapped";
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct amr_cq *cq = new_cq(NULL, 1);
    char *pages;

    CHECK(fd >= 0);
    CHECK_EQ(ftruncate(fd, (off_t)PAGE), 0);
    pages = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(pages != MAP_FAILED);
    for (int unsupported = 0; unsupported < 2; unsupported++) {
        for (long number = 1, more = 1; more; number++) {
            struct amr_wc wc;
            char text[512];

            CHECK_EQ(sim_configure(unsupported ? "fail_nth=1:EOPNOTSUPP" : "fail_nth=1:EFAULT"), 0);
            fail_from(FILES, number, number);
            post_reg(cq, 0, device.pd, pages, PAGE);
            wc = read_wc(cq);
            CHECK(amr_explain(&wc, text, sizeof(text)) > 0);
            more = calls >= number;
            first = 0;
            CHECK_EQ(wc.status, unsupported ? EOPNOTSUPP : EFAULT);
            CHECK(wc.diag != AMR_DIAG_NONE && wc.diag != AMR_DIAG_HOLE);
            CHECK(more || number > 1);
            reset_sim();
        }
    }
    CHECK_EQ(unlink(name), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
}

static void *call_often(void *arg) {
    struct amr_wc wc = {.status = ENOMEM};
    char text[512];

    pthread_barrier_wait(arg);
    for (int i = 0; i < 100; i++) {
        CHECK(amr_explain(&wc, text, sizeof(text)) > 0);
        CHECK(amr_create_engine(NULL) == NULL && (errno == ENOMEM || errno == EAGAIN));
    }
    return NULL;
}

/* Such as find a little less than enough, all at once. */
static void many_threads(void) {
    pthread_t threads[CALLERS];
    pthread_barrier_t barrier;

    CHECK_EQ(pthread_barrier_init(&barrier, NULL, CALLERS + 1), 0);
    for (int i = 0; i < CALLERS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, call_often, &barrier), 0);
    most = LONG / 2;
    fail_from(ALLOCATION, 1, LONG_MAX);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < CALLERS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    first = 0;
    CHECK_EQ(pthread_barrier_destroy(&barrier), 0);
}

static void first_calls(enum kind kind) {
    for (int all = 0; all < 2; all++) {
        long count = every_first_call(kind, all);

        printf("%s: %ld calls of a first use%s\n", kinds[kind], count,
               all ? ", all later ones too" : "");
        CHECK(count > 0);
    }
}

int main(void) {
    device = open_sim();
    CHECK_EQ(sim_configure("pins=0"), 0);
    buffer = map_pages(LARGE);
    CHECK_EQ(setenv("AMR_SIM", "pins=0", 1), 0);
    dl_iterate_phdr(find_libraries, NULL);
    CHECK(library.begin != 0 && simulation.begin != 0);
    if (getenv(FAILS_AT_LOAD) != NULL) {
        first_calls(FORK_HANDLER);
        return 0;
    }
    long_environment();
    for (int kind = 0; kind < KINDS; kind++)
        first_calls((enum kind)kind);
    in_child(bad_environment);
    in_child(many_engines);
    in_child(long_path);
    in_child(mapped_file);
    in_child(many_threads);
    own_engine();
    reset_sim();
    for (int kind = 0; kind < KINDS; kind++)
        for (int all = 0; all < 2; all++)
            printf("%s: %ld calls%s\n", kinds[kind], every_call((enum kind)kind, all),
                   all ? ", all later ones too" : "");
    close_device(device);
    return 0;
}
