/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Completions handed to a function: each exactly once, whole, also at the end of the engine. */
#include "device.h"

#include <pthread.h>

enum { COUNT = 200 };

/* What a request's wr_id points to. */
struct note {
    int calls; /* atomic */
    struct amr_wc wc;
};

static void note_wc(const struct amr_wc *wc) {
    struct note *note = (struct note *)(uintptr_t)wc->wr_id;

    note->wc = *wc;
    __atomic_fetch_add(&note->calls, 1, __ATOMIC_ACQ_REL);
}

static uint64_t id(struct note *note) {
    return (uint64_t)(uintptr_t)note;
}

static void drain(struct amr_engine *engine) {
    CHECK_EQ(amr_drain(engine, NULL, -1), 0);
}

/* Registers many in one call, and deregisters them in another. */
static void check_round(struct amr_engine *engine, struct ibv_pd *pd, char *buffer) {
    static struct note notes[COUNT], gone[COUNT];
    static struct amr_wr wr[COUNT];
    size_t posted = 0;

    memset(notes, 0, sizeof(notes));
    memset(gone, 0, sizeof(gone));
    for (int i = 0; i < COUNT; i++)
        wr[i] = reg_wr(id(&notes[i]), pd, buffer + (size_t)i * PAGE, PAGE, ACCESS);
    CHECK_EQ(amr_post_callback(engine, wr, COUNT, note_wc, &posted), 0);
    CHECK_EQ(posted, COUNT);
    drain(engine);
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQ(notes[i].calls, 1);
        CHECK_EQ(notes[i].wc.opcode, AMR_OP_REG_MR);
        CHECK_EQ(notes[i].wc.status, 0);
        CHECK(notes[i].wc.mr->addr == buffer + (size_t)i * PAGE);
        CHECK(notes[i].wc.busy_ns > 0);
        wr[i] = dereg_wr(id(&gone[i]), notes[i].wc.mr);
    }
    CHECK_EQ(amr_post_callback(engine, wr, COUNT, note_wc, NULL), 0);
    drain(engine);
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQ(gone[i].calls, 1);
        CHECK_EQ(gone[i].wc.opcode, AMR_OP_DEREG_MR);
        CHECK_EQ(gone[i].wc.status, 0);
        CHECK(gone[i].wc.mr == NULL);
    }
}

static void check_refusals(struct amr_engine *engine, struct ibv_pd *pd, void *buffer) {
    struct note notes[3] = {{0}};
    struct amr_wr wr[3] = {reg_wr(id(&notes[0]), pd, buffer, PAGE, ACCESS),
                           reg_wr(id(&notes[1]), pd, buffer, 0, ACCESS),
                           reg_wr(id(&notes[2]), pd, buffer, PAGE, ACCESS)};
    size_t posted = 7;

    CHECK_EQ(amr_post_callback(engine, wr, 3, NULL, &posted), EINVAL);
    CHECK_EQ(posted, 0);
    CHECK_EQ(amr_post_callback(engine, NULL, 1, note_wc, NULL), EINVAL);
    CHECK_EQ(amr_post_callback(engine, NULL, 0, note_wc, NULL), 0);
    CHECK_EQ(amr_post_callback(engine, wr, 3, note_wc, &posted), EINVAL);
    CHECK_EQ(posted, 1);
    drain(engine);
    CHECK_EQ(notes[0].calls, 1);
    CHECK_EQ(notes[1].calls + notes[2].calls, 0);
    CHECK_EQ(ibv_dereg_mr(notes[0].wc.mr), 0);
}

/* A failure comes with its diagnosis, which a plain callback does not get. */
static void check_failure(struct ibv_pd *pd) {
    struct amr_engine *engine = new_engine(1, 4);
    size_t length = 2 * PAGE;
    void *buffer = map_pages(length);
    struct note note = {0};
    struct amr_wr wr = reg_wr(id(&note), pd, buffer, length, ACCESS);

    sim_fail_range(buffer, length, EFAULT);
    CHECK_EQ(amr_post_callback(engine, &wr, 1, note_wc, NULL), 0);
    drain(engine);
    CHECK_EQ(note.calls, 1);
    CHECK_EQ(note.wc.status, EFAULT);
    CHECK(note.wc.mr == NULL);
    CHECK_EQ(note.wc.diag, AMR_DIAG_RANGE);
    CHECK_EQ(note.wc.diag_arg, length);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    reset_sim();
}

/* A region that was given away cannot be given away once more, on any engine; the refused one can.
 */
static void check_twice(struct amr_engine *engine, struct ibv_pd *pd, void *buffer) {
    struct note notes[3] = {{0}};
    struct amr_wr wr = reg_wr(id(&notes[0]), pd, buffer, PAGE, ACCESS);

    CHECK_EQ(amr_post_callback(engine, &wr, 1, note_wc, NULL), 0);
    drain(engine);
    sim_gate_close(SIM_DEREG);
    wr = dereg_wr(id(&notes[1]), notes[0].wc.mr);
    CHECK_EQ(amr_post_callback(engine, &wr, 1, note_wc, NULL), 0);
    wr.wr_id = id(&notes[2]);
    CHECK_EQ(amr_post_callback(engine, &wr, 1, note_wc, NULL), EALREADY);
    CHECK_EQ(amr_post_callback(NULL, &wr, 1, note_wc, NULL), EALREADY);
    sim_gate_open();
    drain(engine);
    CHECK_EQ(notes[1].wc.status, 0);
    CHECK_EQ(notes[2].calls, 0);
}

static void *destroy(void *engine) {
    CHECK_EQ(amr_destroy_engine((struct amr_engine *)engine), 0);
    return NULL;
}

/* A full queue refuses the rest; the end of the engine cancels what waits, and lets the rest run.
 */
static void check_end(struct ibv_pd *pd, void *buffer) {
    struct amr_engine *engine = new_engine(1, 4);
    struct note notes[8] = {{0}};
    struct amr_wr wr[8];
    size_t posted = 0;
    pthread_t thread;
    int done = 0, cancelled = 0;

    for (int i = 0; i < 8; i++)
        wr[i] = reg_wr(id(&notes[i]), pd, buffer, PAGE, ACCESS);
    sim_gate_close(SIM_REG);
    CHECK_EQ(amr_post_callback(engine, wr, 1, note_wc, NULL), 0);
    wait_running(1);
    CHECK_EQ(amr_post_callback(engine, wr + 1, 7, note_wc, &posted), EAGAIN);
    CHECK_EQ(posted, 4);
    CHECK_EQ(pthread_create(&thread, NULL, destroy, engine), 0);
    /* The engine refuses more once it is closing; it may take one before that, as it has no room.
     */
    while (amr_post_callback(engine, wr + 5, 1, note_wc, NULL) != ESHUTDOWN)
        usleep(100);
    sim_gate_open();
    CHECK_EQ(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(notes[i].calls, i < 5);
        if (i < 5 && notes[i].wc.status == 0) {
            done++;
            CHECK_EQ(ibv_dereg_mr(notes[i].wc.mr), 0);
        } else if (i < 5) {
            cancelled++;
            CHECK_EQ(notes[i].wc.status, ECANCELED);
            CHECK(notes[i].wc.mr == NULL);
        }
    }
    CHECK_EQ(done, 1);
    CHECK_EQ(cancelled, 4);
}

int main(void) {
    struct device device = open_device();
    char *buffer = map_pages(COUNT * PAGE);
    struct amr_engine *engine = new_engine(2, 256);

    check_round(engine, device.pd, buffer);
    check_round(NULL, device.pd, buffer);
    check_refusals(engine, device.pd, buffer);
    if (sim_present())
        check_twice(engine, device.pd, buffer);
    CHECK_EQ(amr_destroy_engine(engine), 0);
    if (sim_present()) {
        check_failure(device.pd);
        check_end(device.pd, buffer);
    }
    close_device(device);
    return 0;
}
