/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the real kernel and libibverbs, with its fork support, refuse, and what is found out and
 * said about it: to root first, and then to an unprivileged user. F10 F17 F22 F26. (memlock.c,
 * max_mr.c and refused_commands.c have the rest.)
 */
#include "fork_support.h"
#include "process.h"

#include <fcntl.h>
#include <glob.h>

static const size_t huge = (size_t)2 << 20;

static struct device device;
static struct amr_cq *cq;

/* Memory of all kinds, which only root can get in part. NULL: cannot be had here. */
static struct {
    char *plain;      /* three pages */
    char *unreadable; /* page 1 of 2 */
    char *read_only;  /* page 1 of 2 */
    char *short_file; /* page 0 of 2 */
    char *huge;       /* one huge page */
    char *physical;   /* a page of the BIOS, by /dev/mem */
    char *registers;  /* of a PCI device, by a file of sysfs */
    char *kernel;     /* a page of the kernel's own, for gettimeofday() */
} memory;

static char *map_file(const char *path, off_t offset) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char *pages;

    if (fd < 0)
        return NULL;
    pages = (char *)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    close(fd);
    return pages == MAP_FAILED ? NULL : pages;
}

static char *map_registers(void) {
    char *pages = NULL;
    glob_t found;

    if (glob("/sys/bus/pci/devices/*/resource[0-5]", 0, NULL, &found) != 0)
        return NULL;
    for (size_t i = 0; i < found.gl_pathc && pages == NULL; i++)
        pages = map_file(found.gl_pathv[i], 0);
    globfree(&found);
    return pages;
}

static char *map_huge_page(void) {
    FILE *file = fopen("/proc/sys/vm/nr_hugepages", "we");
    char *pages;

    if (file == NULL)
        return NULL;
    fputs("2\n", file);
    fclose(file);
    pages = (char *)mmap(NULL, huge, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

static char *find_kernel_page(void) {
    FILE *file = fopen("/proc/self/maps", "re");
    uintptr_t begin = 0;
    char line[512];

    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL)
        if (strstr(line, "[vvar]") != NULL)
            begin = strtoul(line, NULL, 16);
    fclose(file);
    return (char *)begin;
}

static void map_memory(void) {
    int fd = memfd_create("short", MFD_CLOEXEC);

    memory.plain = map_pages(3 * PAGE);
    memory.unreadable = map_pages(2 * PAGE);
    CHECK_EQ(mprotect(memory.unreadable + PAGE, PAGE, PROT_NONE), 0);
    memory.read_only = map_pages(2 * PAGE);
    CHECK_EQ(mprotect(memory.read_only + PAGE, PAGE, PROT_READ), 0);
    CHECK(fd >= 0);
    CHECK_EQ(ftruncate(fd, (off_t)PAGE), 0);
    memory.short_file = (char *)mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory.short_file != MAP_FAILED);
    close(fd);
    memory.huge = map_huge_page();
    memory.physical = map_file("/dev/mem", 0xf0000);
    memory.registers = map_registers();
    memory.kernel = find_kernel_page();
}

static void expect(void *addr, size_t length, unsigned access, uint32_t diag, uint64_t diag_arg,
                   const char *words) {
    struct amr_wc wc;
    char text[1024];

    post(cq, reg_wr(1, device.pd, addr, length, access));
    wc = read_wc(cq);
    CHECK(amr_explain(&wc, text, sizeof(text)) < (int)sizeof(text));
    printf("%s: %s\n", strerrorname_np(wc.status), text);
    CHECK(wc.status != 0);
    CHECK_EQ(wc.diag, diag);
    CHECK_EQ(wc.diag_arg, diag_arg);
    if (strstr(text, words) == NULL)
        FAIL("it does not say \"%s\"", words);
}

static void expect_at(char *addr, size_t length, unsigned access, uint32_t diag, char *where,
                      const char *words) {
    if (addr != NULL)
        expect(addr, length, access, diag, (uintptr_t)where, words);
    else
        printf("not to be had here: %s\n", words);
}

/* Made at the last moment, since whatever is mapped next may fill it. */
static void hole(void) {
    char *pages = map_pages(3 * PAGE);

    CHECK_EQ(munmap(pages + PAGE, PAGE), 0);
    expect_at(pages, 3 * PAGE, ACCESS, AMR_DIAG_HOLE, pages + PAGE, "nothing is mapped at 0x");
    CHECK_EQ(munmap(pages, 3 * PAGE), 0);
}

static void mappings(void) {
    expect_at(memory.unreadable, 2 * PAGE, ACCESS, AMR_DIAG_PROTECTION, memory.unreadable + PAGE,
              "is not mapped for reading.");
    expect_at(memory.read_only, 2 * PAGE, ACCESS, AMR_DIAG_PROTECTION, memory.read_only + PAGE,
              "is mapped for reading only, and the access includes writing");
    expect_at(memory.physical, PAGE, ACCESS, AMR_DIAG_UNPINNABLE, memory.physical,
              "memory of a device (/dev/mem)");
    expect_at(memory.registers, PAGE, ACCESS, AMR_DIAG_UNPINNABLE, memory.registers,
              "memory of a device (/sys/devices/pci");
    expect_at(memory.kernel, PAGE, 0, AMR_DIAG_UNPINNABLE, memory.kernel,
              "memory without pages of its own ([vvar]");
    expect(memory.short_file, 2 * PAGE, ACCESS, AMR_DIAG_RANGE, 2 * PAGE,
           "a mapped file is as long as its mapping");
    hole();
}

static void huge_page(void) {
    if (memory.huge == NULL)
        return;
    expect(memory.huge, huge / 2, ACCESS, AMR_DIAG_HUGEPAGE, huge, "a part of a huge page");
}

static void on_demand(void) {
    const unsigned access = ACCESS | IBV_ACCESS_ON_DEMAND;

    expect(memory.plain, PAGE, access, AMR_DIAG_UNSUPPORTED, access,
           "does not support access 0x47");
    /* To such a region fork support does nothing. */
    if (memory.huge != NULL)
        expect(memory.huge, huge / 2, access, AMR_DIAG_UNSUPPORTED, access,
               "does not support access 0x47");
}

/* Fork support has to split the mapping of the region. */
static void map_count(void) {
    struct amr_limits limits = {.size = sizeof(limits)};
    char *pages;
    size_t count, i = 0;

    CHECK_EQ(amr_query_limits(NULL, &limits), 0);
    count = 2 * (size_t)limits.max_map_count;
    pages = (char *)mmap(NULL, count * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                         -1, 0);
    CHECK(pages != MAP_FAILED);
    while (i + 1 < count && mprotect(pages + i * PAGE, PAGE, PROT_READ) == 0)
        i += 2;
    CHECK(i + 1 < count);
    expect(memory.plain + PAGE, PAGE, ACCESS, AMR_DIAG_MAX_MAP_COUNT, limits.max_map_count,
           "Raise vm.max_map_count");
    CHECK_EQ(munmap(pages, count * PAGE), 0);
}

/*
 * Once fork support has failed it does nothing more (rdma-core 44), so that each part has a process
 * of its own.
 */
static void run(void (*part)(void), int as_nobody) {
    pid_t child;

    fflush(stdout);
    child = fork();
    CHECK(child >= 0);
    if (child > 0) {
        check_child(child);
        return;
    }
    begin_fork_support();
    map_memory();
    device = open_device();
    cq = new_cq(NULL, 1);
    if (as_nobody)
        become_nobody();
    printf("As user %d:\n", (int)geteuid());
    part();
    CHECK_EQ(ibv_dereg_mr(reg(cq, device.pd, memory.plain, PAGE)), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    exit_child(0);
}

int main(void) {
    for (int as_nobody = 0; as_nobody < 2; as_nobody++) {
        run(mappings, as_nobody);
        run(on_demand, as_nobody);
        run(huge_page, as_nobody);
        run(map_count, as_nobody);
    }
    return 0;
}
