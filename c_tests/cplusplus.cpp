/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The C header from C++11: lambdas as callbacks, enumerators of verbs as flags, no casts needed. */
#include "device.h"

#include <atomic>

namespace {

struct Ledger {
    std::atomic<int> calls{0};
    std::atomic<ibv_mr *> mr{nullptr};
    std::atomic<int> status{-1};
};

/* A lambda that captures nothing is a function. */
const amr_callback note = [](ibv_mr *mr, int status, void *ctx) {
    auto *ledger = static_cast<Ledger *>(ctx);
    ledger->mr = mr;
    ledger->status = status;
    ledger->calls++;
};

void by_call(const device &dev, void *buffer) {
    Ledger registered, gone;

    CHECK_EQ(amr_register_async(dev.pd, buffer, PAGE,
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, note, &registered),
             0);
    CHECK_EQ(amr_drain(nullptr, dev.pd, -1), 0);
    CHECK_EQ(registered.calls, 1);
    CHECK_EQ(registered.status, 0);
    CHECK(registered.mr.load() != nullptr);
    CHECK_EQ(amr_deregister_async(registered.mr, note, &gone), 0);
    CHECK_EQ(amr_drain(nullptr, nullptr, -1), 0);
    CHECK_EQ(gone.calls, 1);
    CHECK_EQ(gone.status, 0);
    CHECK(gone.mr.load() == nullptr);
}

void by_queue(const device &dev, void *buffer) {
    amr_engine_attr attr = {};
    amr_wr wr = {};
    amr_wc wc;
    std::size_t posted = 0;

    attr.size = sizeof(attr);
    attr.workers = 2;
    amr_engine *engine = amr_create_engine(&attr);
    CHECK(engine != nullptr);
    amr_cq *cq = amr_create_cq(engine, 4);
    CHECK(cq != nullptr);

    wr.wr_id = 42;
    wr.opcode = AMR_OP_REG_MR;
    wr.op.reg_mr.pd = dev.pd;
    wr.op.reg_mr.addr = buffer;
    wr.op.reg_mr.length = PAGE;
    wr.op.reg_mr.access = IBV_ACCESS_LOCAL_WRITE;
    CHECK_EQ(amr_post(cq, &wr, 1, &posted), 0);
    CHECK_EQ(posted, 1);
    CHECK_EQ(amr_wait_cq(cq, 1, &wc, -1), 1);
    CHECK_EQ(wc.wr_id, 42);
    CHECK_EQ(wc.status, 0);
    CHECK_EQ(ibv_dereg_mr(wc.mr), 0);

    CHECK_EQ(amr_destroy_cq(cq), 0);
    CHECK_EQ(amr_destroy_engine(engine), 0);
}

} // namespace

int main() {
    static_assert(sizeof(amr_wr) == 128, "for good");
    static_assert(sizeof(amr_wc) == 64, "for good");
    device dev = open_device();
    void *buffer = map_pages(PAGE);

    by_call(dev, buffer);
    by_queue(dev, buffer);
    close_device(dev);
    return 0;
}
