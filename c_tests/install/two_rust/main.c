/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program with two static Rust libraries in it, both of which work. */
#define _GNU_SOURCE
#include <amr/amr.h>

#include <dlfcn.h>
#include <execinfo.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int other_count_panics(void);

static sem_t done;
static int walked_to_the_end;

/* A panic inside libamr could be caught only if its stack can be unwound. What a walk from here
 * sees last is the C library's start of the thread, below all frames of libamr. */
static void registered(struct ibv_mr *mr, int status, void *ctx) {
    void *frames[64];
    int count = backtrace(frames, 64);
    Dl_info info;

    (void)ctx;
    walked_to_the_end =
        count > 2 && dladdr(frames[count - 1], &info) && strstr(info.dli_fname, "libc.so") != NULL;
    if (status == 0)
        ibv_dereg_mr(mr);
    sem_post(&done);
}

int main(void) {
    static char buffer[1 << 16];
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(devices[0]);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    int panics = other_count_panics();

    sem_init(&done, 0, 0);
    if (amr_register_async(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE, registered, NULL))
        return 1;
    sem_wait(&done);
    printf("panics: %d, stack unwound: %d\n", panics, walked_to_the_end);
    return panics == 3 && walked_to_the_end ? 0 : 1;
}
