/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* libibverbs' own way to survive fork(): madvise() on each buffer (ibv_fork_init(3)). */
#ifndef AMR_FORK_SUPPORT_H
#define AMR_FORK_SUPPORT_H

#include "device.h"

/*
 * Kernels that copy pinned pages at fork() make ibv_fork_init() do nothing, unless
 * RDMAV_USE_MADVISE=1 is set: without it a test of this kind proves nothing.
 */
static inline void begin_fork_support(void) {
    const char *madvises = getenv("RDMAV_USE_MADVISE");

    CHECK(madvises != NULL && strcmp(madvises, "1") == 0);
    CHECK_EQ(ibv_fork_init(), 0);
}

/* Whether the mapping that begins there is not given to children (VM_DONTCOPY). */
static inline int is_kept_from_children(const void *address) {
    FILE *file = fopen("/proc/self/smaps", "re");
    char line[512];
    int inside = 0, found = -1;

    CHECK(file != NULL);
    while (found < 0 && fgets(line, sizeof(line), file) != NULL) {
        unsigned long begin, end;

        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            inside = begin <= (uintptr_t)address && (uintptr_t)address < end;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, " dc") != NULL;
    }
    fclose(file);
    CHECK(found >= 0);
    return found;
}

#endif /* AMR_FORK_SUPPORT_H */
