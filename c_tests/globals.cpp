// SPDX-License-Identifier: MIT OR Apache-2.0
//
// C++ objects that live as long as the program: some are made before the first engine and some
// after, static in functions and in threads. Their destructors call the library, with work queued
// and running, and the process ends with the status that was meant.

#include "device.h"
#include "process.h"

#include <pthread.h>
#include <thread>

namespace {

int may_be(int status) {
    return status == 0 || status == ESHUTDOWN || status == EAGAIN || status == EBUSY ||
           status == ETIMEDOUT;
}

// Calls what a careless destructor would.
struct user {
    amr_cq *cq = nullptr;

    ~user() {
        amr_stats stats = {};
        amr_wc wc;

        stats.size = sizeof(stats);
        amr_query_stats(nullptr, &stats);
        CHECK(may_be(amr_drain(nullptr, nullptr, 1)));
        if (cq == nullptr)
            return;
        while (amr_poll_cq(cq, 1, &wc) == 1)
            ;
        amr_cancel(cq, 1);
        CHECK(may_be(amr_destroy_cq(cq)));
    }
};

struct session {
    device opened;
    char *buffer;
    amr_engine *engine;
    amr_cq *cq;

    session() : opened(open_sim()) {
        CHECK_EQ(sim_configure("pins=0"), 0);
        buffer = static_cast<char *>(map_pages(PAGE));
        engine = new_engine(2, 256);
        cq = new_cq(engine, 256);
    }

    void fill(int count) {
        for (int i = 0; i < count; i++)
            post_reg(cq, 1, opened.pd, buffer, PAGE);
    }

    // In the order of nobody who thinks of errors.
    ~session() {
        int status = amr_destroy_cq(cq);

        CHECK(may_be(status));
        CHECK(may_be(amr_destroy_engine(engine)));
        if (status == 0) // else requests are under way on it
            ibv_dealloc_pd(opened.pd);
    }
};

user before_everything; // its destructor comes last

session &the_session() {
    static session only;
    return only;
}

void end_with(const char *mode) {
    static user late;
    thread_local user of_thread;
    session &use = the_session();

    before_everything.cq = new_cq(use.engine, 4);
    late.cq = new_cq(nullptr, 4);
    of_thread.cq = new_cq(nullptr, 4);
    if (strstr(mode, "stuck") != nullptr) {
        sim_gate_close(SIM_REG);
        use.fill(100);
        wait_running(2);
    } else if (strstr(mode, "flood") != nullptr) {
        use.fill(200);
    }
    post_reg(late.cq, 1, use.opened.pd, use.buffer, PAGE);
    if (strstr(mode, "thread") != nullptr)
        std::thread([] {
            thread_local user own;
            own.cq = new_cq(nullptr, 2);
            exit(7);
        }).join();
    exit(7);
}

} // namespace

int main(int argc, char **argv) {
    static const char *const modes[] = {"idle",        "flood",        "stuck",
                                        "thread idle", "thread flood", "thread stuck"};
    const char *const nothing_more[] = {nullptr};

    if (argc > 1)
        end_with(argv[1]);
    if (!sim_present())
        no_device("not the simulated device");
    for (const char *mode : modes)
        for (int i = 0; i < 2; i++) {
            struct run run = run_self(mode, nothing_more);

            if (run.status != 7 << 8 || run.err[0] != '\0')
                FAIL("%s: wait status %#x, \"%s\"", mode, unsigned(run.status), run.err);
        }
    // None of that was done here: no engine, no device.
    return 0;
}
