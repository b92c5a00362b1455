/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * RDMA WRITE and READ between two processes. rc_write_sync.c registers its memory
 * with ibv_reg_mr, rc_write.c with libamr; `diff` shows that nothing else differs.
 *
 * Usage: rc_write[_sync] [--device NAME] [--port PORT] [HOST | --pair]
 */
#include "common/rc.h"
#include <amr/amr.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 4 };
static const size_t SIZE = (size_t)1 << 20;
static const int ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct buffer {
    unsigned char *data;
    struct ibv_mr *mr;
    int status;
};

/* Called on a thread of the library when a request is over. */
static void on_done(struct ibv_mr *mr, int status, void *ctx) {
    struct buffer *buffer = ctx;
    buffer->mr = mr;
    buffer->status = status;
}

/* Once amr_drain has returned, so has every callback. */
static void wait_for_all(const char *what, struct ibv_pd *pd, struct buffer *buffers) {
    int error = amr_drain(NULL, pd, -1);
    for (int i = 0; i < BUFFERS && !error; i++)
        error = buffers[i].status;
    if (error)
        errx(1, "%s: %s", what, amr_status_str(error));
}

static void register_buffers(struct ibv_pd *pd, struct buffer *buffers) {
    for (int i = 0; i < BUFFERS; i++) {
        int error = amr_register_async(pd, buffers[i].data, SIZE, ACCESS, on_done, &buffers[i]);
        if (error)
            errx(1, "amr_register_async: %s", amr_status_str(error));
    }
}

static void deregister_buffers(struct buffer *buffers) {
    for (int i = 0; i < BUFFERS; i++) {
        int error = amr_deregister_async(buffers[i].mr, on_done, &buffers[i]);
        if (error)
            errx(1, "amr_deregister_async: %s", amr_status_str(error));
    }
}

static void allocate(struct buffer *buffers) {
    for (int i = 0; i < BUFFERS; i++) {
        buffers[i].data = calloc(1, SIZE); /* not malloc: valgrind does not see RDMA */
        if (!buffers[i].data)
            err(1, "calloc");
    }
}

/* Contents that tell the writer, the buffer and the place in it. */
static unsigned char expected(int writer, int buffer, size_t i) {
    return (unsigned char)(writer + buffer + (int)(i % 251));
}

static void fill(struct buffer *buffers, int writer) {
    for (int b = 0; b < BUFFERS; b++)
        for (size_t i = 0; i < SIZE; i++)
            buffers[b].data[i] = expected(writer, b, i);
}

static void verify(const struct rc *rc, const struct buffer *buffers, int writer) {
    for (int b = 0; b < BUFFERS; b++)
        for (size_t i = 0; i < SIZE; i++)
            if (buffers[b].data[i] != expected(writer, b, i))
                errx(1, "%s: buffer %d is wrong from byte %zu on", rc->role, b, i);
    printf("%s: %d buffers of %zu bytes hold what the peer put there\n", rc->role, BUFFERS, SIZE);
}

static void client(struct rc *rc, struct buffer *buffers, const struct rc_key *peer) {
    fill(buffers, 'c');
    for (int i = 0; i < BUFFERS; i++)
        rc_write(rc, buffers[i].mr, peer[i]);
    rc_barrier(rc); /* the server looks at them, and fills them anew */
    rc_barrier(rc);
    for (int i = 0; i < BUFFERS; i++)
        rc_read(rc, buffers[i].mr, peer[i]);
    verify(rc, buffers, 's');
}

static void server(struct rc *rc, struct buffer *buffers) {
    rc_barrier(rc);
    verify(rc, buffers, 'c');
    fill(buffers, 's');
    rc_barrier(rc);
}

int main(int argc, char **argv) {
    struct rc rc;
    struct buffer buffers[BUFFERS] = {{0}};
    struct rc_key peer[BUFFERS];

    rc_open(&rc, argc, argv);
    allocate(buffers);
    register_buffers(rc.pd, buffers);
    rc_connect(&rc);
    wait_for_all("registration", rc.pd, buffers);

    for (int i = 0; i < BUFFERS; i++)
        peer[i] = rc_swap_keys(&rc, buffers[i].mr);
    if (rc.is_client)
        client(&rc, buffers, peer);
    else
        server(&rc, buffers);
    rc_barrier(&rc); /* from here on nobody touches the peer's memory */

    deregister_buffers(buffers);
    wait_for_all("deregistration", rc.pd, buffers);
    for (int i = 0; i < BUFFERS; i++)
        free(buffers[i].data);
    rc_close(&rc);
    return 0;
}
