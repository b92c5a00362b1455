/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* How the device reads and writes registered memory. */
#include "sim_internal.h"

#include <sys/uio.h>
#include <unistd.h>

/* Finds the memory of a range of a region, if the key covers it with that access. The caller
 * releases the region. */
static struct sim_mr *acquire(const struct ibv_pd *pd, uint32_t key, uint64_t addr, uint64_t length,
                              uint32_t access, char **memory) {
    struct sim_mr *mr = sim_mr_acquire(key);
    uint64_t offset;

    if (mr == NULL)
        return NULL;
    offset = addr - mr->iova;
    if (mr->ibv.pd != pd || (mr->access & access) != access || offset > mr->ibv.length ||
        length > mr->ibv.length - offset) {
        sim_mr_release(mr);
        return NULL;
    }
    *memory = (char *)mr->ibv.addr + offset;
    return mr;
}

bool sim_key_allows(const struct ibv_pd *pd, uint32_t key, uint64_t addr, uint64_t length,
                    uint32_t access) {
    char *memory;
    struct sim_mr *mr = acquire(pd, key, addr, length, access, &memory);

    if (mr == NULL)
        return false;
    sim_mr_release(mr);
    return true;
}

/* Copies through the kernel: memory that the program has unmapped, although it is registered,
 * makes the copy fail and not the process. */
static bool copy(void *buffer, char *memory, size_t length, bool to_memory) {
    struct iovec local = {buffer, length};
    struct iovec remote = {memory, length};
    ssize_t copied = to_memory ? process_vm_writev(getpid(), &local, 1, &remote, 1, 0)
                               : process_vm_readv(getpid(), &local, 1, &remote, 1, 0);

    return copied >= 0 && (size_t)copied == length;
}

bool sim_key_copy(const struct ibv_pd *pd, uint32_t key, uint64_t addr, void *buffer, size_t length,
                  uint32_t access, bool to_region) {
    char *memory;
    struct sim_mr *mr = acquire(pd, key, addr, length, access, &memory);
    bool copied;

    if (mr == NULL)
        return false;
    copied = mr->has_memory && copy(buffer, memory, length, to_region);
    sim_mr_release(mr);
    return copied;
}

bool sim_sges_allow(const struct sim_cursor *cursor, uint32_t access) {
    for (int i = 0; i < cursor->count; i++) {
        const struct ibv_sge *sge = &cursor->sges[i];

        if (sge->length > 0 &&
            !sim_key_allows(cursor->pd, sge->lkey, sge->addr, sge->length, access))
            return false;
    }
    return true;
}

bool sim_sges_copy(struct sim_cursor *cursor, void *buffer, size_t length, bool to_region) {
    uint32_t access = to_region ? IBV_ACCESS_LOCAL_WRITE : 0;
    char *place = buffer;

    while (length > 0) {
        const struct ibv_sge *sge = &cursor->sges[cursor->index];
        size_t part;

        if (cursor->index == cursor->count)
            return false;
        part = sge->length - cursor->offset;
        if (part > length)
            part = length;
        if (part > 0 && !sim_key_copy(cursor->pd, sge->lkey, sge->addr + cursor->offset, place,
                                      part, access, to_region))
            return false;
        place += part;
        length -= part;
        cursor->offset += (uint32_t)part;
        if (cursor->offset == sge->length) {
            cursor->index++;
            cursor->offset = 0;
        }
    }
    return true;
}

bool sim_key_atomic(const struct ibv_pd *pd, uint32_t key, uint64_t addr, enum ibv_wr_opcode opcode,
                    uint64_t compare_add, uint64_t swap, uint64_t *before) {
    char *memory;
    struct sim_mr *mr;
    bool done;

    mr = acquire(pd, key, addr, sizeof(*before), IBV_ACCESS_REMOTE_ATOMIC, &memory);
    if (mr == NULL)
        return false;
    /* Reading it and writing it back shows that the memory is there. */
    done = mr->has_memory && copy(before, memory, sizeof(*before), false);
    if (done) {
        _Atomic uint64_t *target = (_Atomic uint64_t *)(void *)memory;

        *before = compare_add;
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
            *before = atomic_fetch_add(target, compare_add);
        else
            atomic_compare_exchange_strong(target, before, swap);
    }
    sim_mr_release(mr);
    return done;
}
