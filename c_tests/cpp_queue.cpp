// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::CompletionQueue and amr::Engine: completions that own their regions, and the descriptor.
#include "cpp.hpp"

#include <poll.h>

namespace {

char memory[4 * 4096];

bool is_readable(int fd) {
    struct pollfd entry = {fd, POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
}

amr::Completion wait(amr::CompletionQueue &queue) {
    amr::Completion completion;
    CHECK(queue.wait(completion));
    return completion;
}

void check_descriptor(const amr::RDMAContext &context) {
    amr::CompletionQueue queue(context, 4);
    amr::Completion completion;
    CHECK(!is_readable(queue.fd()));
    CHECK(!queue.poll(completion));
    CHECK(!queue.wait(completion, std::chrono::milliseconds(1)));
    queue.register_memory(memory, sizeof(memory), test::rights, 42);
    struct pollfd entry = {queue.fd(), POLLIN, 0};
    while (poll(&entry, 1, -1) != 1) {
    }
    CHECK(queue.poll(completion));
    CHECK(!is_readable(queue.fd()));
    CHECK_EQ(completion.id(), 42);
    CHECK(!completion.code());
    completion.check();
    CHECK(completion.region().addr() == memory);
    CHECK_EQ(completion.wc().opcode, AMR_OP_REG_MR);
}

// What is not taken out of a completion is deregistered.
void check_ownership(const amr::RDMAContext &context) {
    amr::CompletionQueue queue(context, 4);
    amr::MemoryRegion kept;
    const uint64_t before = sim_counts().live_mrs;
    {
        queue.register_memory(memory, test::rights, 1);
        queue.register_memory(memory, test::rights, 2);
        wait(queue);
        kept = std::move(wait(queue).region());
    }
    CHECK_EQ(sim_counts().live_mrs, before + 1);
    queue.deregister(std::move(kept), 3);
    CHECK(!kept);
    amr::Completion completion = wait(queue);
    completion.check();
    CHECK(!completion.region());
    CHECK_EQ(sim_counts().live_mrs, before);
}

void check_failures(const amr::RDMAContext &context) {
    amr::CompletionQueue queue(context, 4);
    sim_fail_range(memory, sizeof(memory), EFAULT);
    queue.register_memory(memory, test::rights, 1);
    amr::Completion failed = wait(queue);
    CHECK(failed.code() == std::errc::bad_address);
    CHECK(!failed.region());
    CHECK_EQ(test::thrown(std::errc::bad_address, [&] { failed.check(); }).diagnosis(),
             AMR_DIAG_RANGE);
    reset_sim();

    // A deregistration that fails gives the region back.
    queue.register_memory(memory, test::rights, 2);
    amr::MemoryRegion region = std::move(wait(queue).region());
    const ibv_mr *mr = region.raw();
    CHECK_EQ(sim_configure("dereg_fail_first=1"), 0);
    queue.deregister(std::move(region), 3);
    amr::Completion busy = wait(queue);
    CHECK(busy.code() == std::errc::device_or_resource_busy);
    CHECK(busy.region().raw() == mr);
    reset_sim();
}

void check_refusals(const amr::RDMAContext &context) {
    amr::CompletionQueue queue(context, 1);
    test::thrown(std::errc::invalid_argument,
                 [&] { queue.register_memory(memory, 0, test::rights, 1); });
    test::thrown(std::errc::invalid_argument, [&] { queue.deregister(amr::MemoryRegion(), 1); });
    queue.register_memory(memory, test::rights, 1);
    test::thrown(std::errc::resource_unavailable_try_again,
                 [&] { queue.register_memory(memory, test::rights, 2); });
    amr::MemoryRegion region = std::move(wait(queue).region());
    queue.register_memory(memory, test::rights, 3);
    test::thrown(std::errc::resource_unavailable_try_again,
                 [&] { queue.deregister(std::move(region), 4); });
    CHECK(region);
    test::thrown(std::errc::invalid_argument, [&] { amr::CompletionQueue none(context, 0); });
    const std::vector<char> constant(10);
    test::thrown(std::errc::invalid_argument,
                 [&] { queue.register_memory(constant, test::rights, 1); });
}

void check_posting(const amr::RDMAContext &context) {
    amr::Engine engine(1, 16);
    amr::CompletionQueue queue(context, engine, 3);
    amr_wr wr[4];
    for (unsigned i = 0; i < 4; i++)
        wr[i] = reg_wr(i, context.pd(), memory, PAGE, ACCESS);
    sim_gate_close(SIM_REG);
    CHECK_EQ(queue.post(wr, 4), 3);
    wait_running(1);
    test::thrown(std::errc::connection_already_in_progress, [&] { queue.cancel(0); });
    queue.cancel(1);
    test::thrown(std::errc::no_such_file_or_directory, [&] { queue.cancel(7); });
    CHECK(wait(queue).code() == std::errc::operation_canceled);
    sim_gate_open();
    wait(queue).check();
    wait(queue).check();
}

// The queue ends with work on it, also such that it was not told of.
void check_end(const amr::RDMAContext &context) {
    CHECK_EQ(sim_configure("reg_delay_us=1000"), 0);
    const uint64_t before = sim_counts().live_mrs;
    {
        amr::Engine engine(1);
        amr::CompletionQueue queue(context, engine, 8);
        for (unsigned i = 0; i < 4; i++)
            queue.register_memory(memory, test::rights, i);
        amr_wr wr = reg_wr(9, context.pd(), memory, PAGE, ACCESS);
        CHECK_EQ(amr_post(queue.native(), &wr, 1, nullptr), 0);
        wait(queue);
    }
    CHECK_EQ(sim_counts().live_mrs, before);
    reset_sim();
}

void check_moves(const amr::RDMAContext &context) {
    amr::Engine one(2);
    amr::Engine two(std::move(one));
    test::thrown(std::errc::invalid_argument, [&] { one.drain(); });
    test::thrown(std::errc::invalid_argument, [&] { amr::CompletionQueue none(context, one, 1); });
    CHECK_EQ(two.stats().workers, 2);
    one = std::move(two);
    CHECK(one.drain(std::chrono::seconds(1)));

    amr::CompletionQueue from(context, one, 4);
    from.register_memory(memory, test::rights, 1);
    amr::CompletionQueue to(std::move(from));
    amr::Completion completion;
    test::thrown(std::errc::invalid_argument, [&] { (void)from.poll(completion); });
    test::thrown(std::errc::invalid_argument, [&] { (void)from.fd(); });
    CHECK_EQ(wait(to).id(), 1);
    to.register_memory(memory, test::rights, 2);
    from = std::move(to);
    CHECK_EQ(wait(from).id(), 2);
    from = amr::CompletionQueue(context, one, 1);
    amr::Completion moved(std::move(completion));
    completion = std::move(moved);
}

void check_engines() {
    CHECK(amr::Engine::default_engine().native() == amr_default_engine());
    test::thrown(std::errc::invalid_argument, [] { amr::Engine engine(AMR_MAX_WORKERS + 1); });
    test::thrown(std::errc::invalid_argument, [] { amr::Engine engine(1, 0, "no CPUs"); });
    amr::Engine engine(1, 2);
    CHECK_EQ(engine.stats().queue_depth, 2);
    amr::RDMAContext context;
    amr::CompletionQueue queue(context, engine, 2);
    sim_gate_close(SIM_REG);
    queue.register_memory(memory, test::rights, 1);
    CHECK(!engine.drain(std::chrono::milliseconds(1)));
    CHECK(engine.drain(std::chrono::milliseconds(1), context.pd()) == false);
    sim_gate_open();
    CHECK(engine.drain());
}

} // namespace

int main() {
    test::Sim sim;
    amr::RDMAContext context;

    check_descriptor(context);
    check_ownership(context);
    check_failures(context);
    check_refusals(context);
    check_posting(context);
    check_end(context);
    check_moves(context);
    check_engines();
    return 0;
}
