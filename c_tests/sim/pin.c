/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Pins memory as the RDMA core does: registered buffers of io_uring are pinned with the same
 * kernel call (long-term pin), with page faults, memlock accounting and real errors.
 *
 * A small region is a slot in the table of a ring that many regions share. A large one, which
 * keeps its ring busy for long, gets a ring to itself, so that nothing waits behind it.
 */
#include "sim_internal.h"

#include <linux/capability.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    SHARED_SLOTS = 4096,
    MOST_SLOTS = 16384, /* the kernel's limit for one ring */
    IDLE_RINGS = 8,
    OWN_RING_BYTES = 4 << 20,
    CHUNK_BYTES = 1 << 30, /* the kernel's limit for one buffer */
};

/* Whom the kernel charges is decided when a ring is made; a ring serves only calls that match. */
struct payer {
    uid_t uid;
    bool unlimited;
};

struct sim_ring {
    int fd;
    bool shared;
    struct payer payer;
    struct sim_ring *next;
    pthread_mutex_t lock; /* the kernel serialises calls on a ring as well */
    uint32_t free_count;
    uint16_t free_slots[]; /* of a shared ring */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_ring *shared_rings;
static struct sim_ring *idle_rings; /* with no buffers, for large regions */
static unsigned idle_count;
static atomic_ullong pinned_bytes;
static _Atomic uint64_t generation;

/* ---- System calls ---------------------------------------------------------------------------- */

static int ring_register(const struct sim_ring *ring, unsigned opcode, const void *argument,
                         unsigned count) {
    long result;

    do {
        result = syscall(SYS_io_uring_register, ring->fd, opcode, argument, count);
    } while (result < 0 && errno == EINTR);
    return result < 0 ? errno : 0;
}

static struct payer current_payer(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};

    syscall(SYS_capget, &header, data);
    return (struct payer){getuid(), (data[0].effective >> CAP_IPC_LOCK) & 1};
}

static bool same_payer(struct payer a, struct payer b) {
    return a.uid == b.uid && a.unlimited == b.unlimited;
}

/* Returns NULL and sets errno. */
static struct sim_ring *ring_open(bool shared, struct payer payer) {
    uint32_t slots = shared ? SHARED_SLOTS : 0;
    struct sim_ring *ring = malloc(sizeof(*ring) + slots * sizeof(ring->free_slots[0]));
    struct io_uring_params params = {0};

    if (ring == NULL)
        return NULL;
    ring->fd = (int)syscall(SYS_io_uring_setup, 1, &params);
    if (ring->fd < 0) {
        int err = errno;

        free(ring);
        if (err == ENOSYS || err == EPERM)
            sim_abort_line("this kernel refuses io_uring, so memory cannot be pinned (errno %d); "
                           "set AMR_SIM=pins=0",
                           err);
        errno = err;
        return NULL;
    }
    ring->shared = shared;
    ring->payer = payer;
    ring->next = NULL;
    pthread_mutex_init(&ring->lock, NULL);
    ring->free_count = slots;
    for (uint32_t i = 0; i < slots; i++)
        ring->free_slots[i] = (uint16_t)(slots - 1 - i);
    return ring;
}

static void ring_close(struct sim_ring *ring) {
    close(ring->fd);
    pthread_mutex_destroy(&ring->lock);
    free(ring);
}

static int make_table(const struct sim_ring *ring) {
    struct io_uring_rsrc_register table = {
        .nr = SHARED_SLOTS,
        .flags = IORING_RSRC_REGISTER_SPARSE,
    };

    return ring_register(ring, IORING_REGISTER_BUFFERS2, &table, sizeof(table));
}

static int set_slot(const struct sim_ring *ring, uint32_t slot, struct iovec buffer) {
    struct io_uring_rsrc_update2 update = {
        .offset = slot,
        .data = (uintptr_t)&buffer,
        .nr = 1,
    };

    return ring_register(ring, IORING_REGISTER_BUFFERS_UPDATE, &update, sizeof(update));
}

SIM_EXPORT int sim_can_pin(void) {
    struct io_uring_params params = {0};
    long fd = syscall(SYS_io_uring_setup, 1, &params);

    if (fd < 0)
        return 0;
    close((int)fd);
    return 1;
}

/* ---- Small regions: a slot of a shared ring -------------------------------------------------- */

/* A shared ring with a free slot, locked; one that nobody uses now if possible. */
static struct sim_ring *find_shared(struct payer payer, bool wait) {
    for (struct sim_ring *ring = shared_rings; ring != NULL; ring = ring->next) {
        if (!same_payer(ring->payer, payer))
            continue;
        if (wait)
            pthread_mutex_lock(&ring->lock);
        else if (pthread_mutex_trylock(&ring->lock) != 0)
            continue;
        if (ring->free_count > 0)
            return ring;
        pthread_mutex_unlock(&ring->lock);
    }
    return NULL;
}

static struct sim_ring *lock_shared(struct payer payer, int *err) {
    struct sim_ring *ring;

    pthread_mutex_lock(&lock);
    ring = find_shared(payer, false);
    if (ring == NULL) {
        ring = ring_open(true, payer);
        *err = errno;
        if (ring != NULL) {
            *err = make_table(ring);
            if (*err != 0) {
                ring_close(ring);
                ring = NULL;
            } else {
                pthread_mutex_lock(&ring->lock);
                ring->next = shared_rings;
                shared_rings = ring;
            }
        }
        if (ring == NULL)
            ring = find_shared(payer, true);
    }
    pthread_mutex_unlock(&lock);
    return ring;
}

/* Makes sure that there is a shared ring, before rings for large regions take all descriptors. */
static int keep_shared(struct payer payer) {
    bool found = false;
    int err = 0;
    struct sim_ring *ring;

    pthread_mutex_lock(&lock);
    for (ring = shared_rings; ring != NULL && !found; ring = ring->next)
        found = same_payer(ring->payer, payer);
    pthread_mutex_unlock(&lock);
    if (found)
        return 0;
    ring = lock_shared(payer, &err);
    if (ring == NULL)
        return err;
    pthread_mutex_unlock(&ring->lock);
    return 0;
}

static int pin_shared(struct sim_pin *pin, struct iovec buffer, struct payer payer) {
    int err = 0;
    struct sim_ring *ring = lock_shared(payer, &err);

    if (ring == NULL)
        return err;
    pin->slot = ring->free_slots[ring->free_count - 1];
    err = set_slot(ring, pin->slot, buffer);
    if (err == 0) {
        ring->free_count--;
        pin->ring = ring;
        pin->slots = 1;
    }
    pthread_mutex_unlock(&ring->lock);
    return err;
}

static void unpin_shared(const struct sim_pin *pin) {
    static const struct iovec empty = {NULL, 0};
    struct sim_ring *ring = pin->ring;
    int err;

    pthread_mutex_lock(&ring->lock);
    err = set_slot(ring, pin->slot, empty);
    if (err != 0)
        sim_abort_line("cannot unpin (errno %d)", err);
    ring->free_slots[ring->free_count++] = (uint16_t)pin->slot;
    pthread_mutex_unlock(&ring->lock);
}

/* ---- Large regions: a ring of their own ------------------------------------------------------ */

static struct sim_ring *take_idle(struct payer payer) {
    struct sim_ring **link, *ring;

    pthread_mutex_lock(&lock);
    for (link = &idle_rings; *link != NULL; link = &(*link)->next) {
        if (same_payer((*link)->payer, payer))
            break;
    }
    ring = *link;
    if (ring != NULL) {
        *link = ring->next;
        idle_count--;
    }
    pthread_mutex_unlock(&lock);
    return ring;
}

static void give_idle(struct sim_ring *ring) {
    pthread_mutex_lock(&lock);
    if (idle_count < IDLE_RINGS) {
        ring->next = idle_rings;
        idle_rings = ring;
        idle_count++;
        ring = NULL;
    }
    pthread_mutex_unlock(&lock);
    if (ring != NULL)
        ring_close(ring);
}

static int pin_own(struct sim_pin *pin, char *addr, size_t length, struct payer payer) {
    size_t count = (length + CHUNK_BYTES - 1) / CHUNK_BYTES;
    struct iovec *buffers;
    struct sim_ring *ring;
    int err;

    if (count > MOST_SLOTS)
        return ENOMEM;
    ring = take_idle(payer);
    if (ring == NULL)
        ring = ring_open(false, payer);
    if (ring == NULL)
        return errno;
    buffers = calloc(count, sizeof(*buffers));
    if (buffers == NULL) {
        give_idle(ring);
        return ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        size_t offset = i * CHUNK_BYTES;

        buffers[i].iov_base = addr + offset;
        buffers[i].iov_len = length - offset < CHUNK_BYTES ? length - offset : CHUNK_BYTES;
    }
    err = ring_register(ring, IORING_REGISTER_BUFFERS, buffers, (unsigned)count);
    free(buffers);
    if (err != 0) {
        give_idle(ring);
        return err;
    }
    pin->ring = ring;
    pin->slots = (uint32_t)count;
    return 0;
}

static void unpin_own(const struct sim_pin *pin) {
    int err = ring_register(pin->ring, IORING_UNREGISTER_BUFFERS, NULL, 0);

    if (err != 0)
        sim_abort_line("cannot unpin (errno %d)", err);
    give_idle(pin->ring);
}

/* ---- For mr.c -------------------------------------------------------------------------------- */

static int pin_pages(struct sim_pin *pin, char *addr, size_t length, struct payer payer) {
    if (length >= OWN_RING_BYTES) {
        int err = keep_shared(payer);

        if (err == 0)
            err = pin_own(pin, addr, length, payer);
        /* Out of file descriptors: a shared ring does as well, if one buffer is enough. */
        if ((err != EMFILE && err != ENFILE) || length > CHUNK_BYTES)
            return err;
    }
    return pin_shared(pin, (struct iovec){addr, length}, payer);
}

/* io_uring pins for writing only, which read-only memory does not allow. A device that is not
 * going to write would pin such memory; the closest thing is to make sure that it can be read. */
static int check_readable(char *addr, size_t length) {
    char *begin = (char *)((uintptr_t)addr & ~(uintptr_t)(SIM_PAGE_SIZE - 1));
    int result;

    do {
        result = madvise(begin, (size_t)(addr + length - begin), MADV_POPULATE_READ);
    } while (result != 0 && (errno == EINTR || errno == EAGAIN));
    return result == 0 ? 0 : EFAULT;
}

int sim_pin(struct sim_pin *pin, const void *addr, size_t length, bool writable) {
    struct payer payer = current_payer();
    uintptr_t first = (uintptr_t)addr & ~(uintptr_t)(SIM_PAGE_SIZE - 1);
    struct rlimit limit;
    int err;

    /* The RDMA core looks at this before anything else, io_uring does not. */
    if (!payer.unlimited && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == 0)
        return EPERM;
    if ((uintptr_t)addr < SIM_PAGE_SIZE)
        return EFAULT; /* to io_uring, NULL is an empty slot */
    err = pin_pages(pin, (char *)(uintptr_t)addr, length, payer);
    if (err == EFAULT && !writable)
        return check_readable((char *)(uintptr_t)addr, length);
    if (err == 0) {
        pin->generation = atomic_load(&generation);
        pin->bytes =
            ((uintptr_t)addr + length - first + SIM_PAGE_SIZE - 1) & ~(uint64_t)(SIM_PAGE_SIZE - 1);
        atomic_fetch_add(&pinned_bytes, pin->bytes);
    }
    return err;
}

void sim_unpin(struct sim_pin *pin) {
    /* What the parent of this process pinned is the parent's. */
    if (pin->ring == NULL || pin->generation != atomic_load(&generation))
        return;
    atomic_fetch_sub(&pinned_bytes, pin->bytes);
    if (pin->ring->shared)
        unpin_shared(pin);
    else
        unpin_own(pin);
    pin->ring = NULL;
}

uint64_t sim_pinned_bytes(void) {
    return atomic_load(&pinned_bytes);
}

void sim_pin_lock(void) {
    pthread_mutex_lock(&lock);
}

void sim_pin_unlock(void) {
    pthread_mutex_unlock(&lock);
}

void sim_pin_after_fork(void) {
    /* The rings belong to the parent's memory, and their locks may be held by threads that do not
     * exist here. An open descriptor here would keep the parent's pages pinned after its end. */
    for (struct sim_ring *ring = shared_rings; ring != NULL; ring = ring->next)
        close(ring->fd);
    for (struct sim_ring *ring = idle_rings; ring != NULL; ring = ring->next)
        close(ring->fd);
    shared_rings = NULL;
    idle_rings = NULL;
    idle_count = 0;
    atomic_store(&pinned_bytes, 0);
    atomic_fetch_add(&generation, 1);
}
