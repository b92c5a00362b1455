// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::MemoryRegion: its keys, its elements, and every way that it can end. F31 F32.
#include "cpp.hpp"

#include <stdexcept>
#include <type_traits>

using amr::MemoryRegion;

static_assert(std::is_nothrow_move_constructible<MemoryRegion>::value, "");
static_assert(std::is_nothrow_move_assignable<MemoryRegion>::value, "");
static_assert(!std::is_copy_constructible<MemoryRegion>::value, "");

namespace {

char memory[2 * 4096];
int last_failure = 0;

void note_failure(const char *what, int status) {
    CHECK_STR(what, "ibv_dereg_mr");
    last_failure = status;
}

struct Fixture {
    amr::RDMAContext context;
    amr::AsyncMRManager manager;

    Fixture() : manager(context, 1) {}

    MemoryRegion region() {
        return std::move(*manager.register_memory(memory, test::rights).get());
    }
};

void check_accessors(Fixture &fixture) {
    MemoryRegion region = fixture.region();
    const ibv_mr *mr = region.raw();
    CHECK(region);
    CHECK_EQ(region.lkey(), mr->lkey);
    CHECK_EQ(region.rkey(), mr->rkey);
    CHECK(region.addr() == memory);
    CHECK_EQ(region.length(), sizeof(memory));

    const ibv_sge all = region.sge();
    CHECK_EQ(all.addr, reinterpret_cast<std::uintptr_t>(memory));
    CHECK_EQ(all.length, sizeof(memory));
    CHECK_EQ(all.lkey, mr->lkey);
    const ibv_sge part = region.sge(100, 8);
    CHECK_EQ(part.addr, reinterpret_cast<std::uintptr_t>(memory) + 100);
    CHECK_EQ(part.length, 8);
    CHECK_EQ(region.sge(sizeof(memory), 0).length, 0);
}

void check_out_of_range(const MemoryRegion &region, std::size_t offset, std::size_t length) {
    try {
        (void)region.sge(offset, length);
    } catch (const std::out_of_range &) {
        return;
    }
    FAIL("sge(%zu, %zu) is not in the region", offset, length);
}

void check_bounds(Fixture &fixture) {
    MemoryRegion region = fixture.region();
    check_out_of_range(region, 0, sizeof(memory) + 1);
    check_out_of_range(region, 1, sizeof(memory));
    check_out_of_range(region, sizeof(memory) + 1, 0);
    check_out_of_range(region, SIZE_MAX, 2);
    check_out_of_range(region, 2, SIZE_MAX);
    check_out_of_range(MemoryRegion(), 0, 1);
}

// An element has 32 bits for its length.
void check_long_region(Fixture &fixture) {
    const std::size_t length = (std::size_t{1} << 32) + 4096;
    CHECK_EQ(sim_configure("pins=0"), 0);
    auto region = fixture.manager.register_memory(memory, length, test::rights).get();
    check_out_of_range(*region, 0, length);
    CHECK_EQ(region->sge(4096, 0xffffffff).length, 0xffffffff);
    reset_sim();
}

void check_is_empty(MemoryRegion &region) {
    CHECK(!region && region.raw() == nullptr && region.addr() == nullptr);
    CHECK_EQ(region.lkey() + region.rkey() + region.length(), 0);
    test::thrown(std::errc::invalid_argument, [&] { region.deregister(); });
    test::thrown(std::errc::invalid_argument, [&] { (void)region.deregister_async(); });
    CHECK(region.release() == nullptr);
}

void check_moves(Fixture &fixture) {
    const uint64_t before = sim_counts().live_mrs;
    MemoryRegion one = fixture.region();
    ibv_mr *mr = one.raw();
    MemoryRegion two(std::move(one));
    check_is_empty(one);
    CHECK(two.raw() == mr);
    one = std::move(two);
    check_is_empty(two);
    CHECK(one.raw() == mr);
    CHECK_EQ(sim_counts().live_mrs, before + 1);
    one = fixture.region();
    CHECK_EQ(sim_counts().live_mrs, before + 1);
    one = MemoryRegion();
    check_is_empty(one);
    CHECK_EQ(sim_counts().live_mrs, before);
}

void check_release(Fixture &fixture) {
    MemoryRegion region = fixture.region();
    ibv_mr *mr = region.release();
    check_is_empty(region);
    // And back again.
    MemoryRegion again(mr, fixture.context);
    CHECK(again.raw() == mr);
    again.deregister();
    check_is_empty(again);
}

void check_failed_deregistration(Fixture &fixture) {
    MemoryRegion region = fixture.region();
    const ibv_mr *mr = region.raw();
    CHECK_EQ(sim_configure("dereg_fail_first=1"), 0);
    const amr::error error =
        test::thrown(std::errc::device_or_resource_busy, [&] { region.deregister(); });
    CHECK(std::strstr(error.what(), "still alive") != nullptr);
    CHECK(region.raw() == mr);
    region.deregister();
    check_is_empty(region);
    reset_sim();
}

void check_failed_destructor(Fixture &fixture) {
    amr::set_failure_handler(note_failure);
    const uint64_t before = amr::destructor_failures();
    ibv_mr *mr;
    {
        MemoryRegion region = fixture.region();
        mr = region.raw();
        CHECK_EQ(sim_configure("dereg_fail_first=1:EINVAL"), 0);
    }
    CHECK_EQ(amr::destructor_failures(), before + 1);
    CHECK_EQ(last_failure, EINVAL);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    amr::set_failure_handler(nullptr);
    reset_sim();
}

// While it is under way, the region cannot be used, and not be deregistered once more.
void check_async(Fixture &fixture) {
    MemoryRegion region = fixture.region();
    sim_gate_close(SIM_DEREG);
    std::future<void> future = region.deregister_async(fixture.manager.engine());
    check_is_empty(region);
    sim_gate_open();
    future.get();
    check_is_empty(region);

    MemoryRegion other = fixture.region();
    other.deregister_async().get();
    check_is_empty(other);
}

void check_failed_async(Fixture &fixture) {
    MemoryRegion region = fixture.region();
    const ibv_mr *mr = region.raw();
    CHECK_EQ(sim_configure("dereg_fail_first=2"), 0);
    std::future<void> first = region.deregister_async(fixture.manager.engine());
    test::thrown(std::errc::device_or_resource_busy, [&] { first.get(); });
    CHECK(region.raw() == mr);
    CHECK_EQ(region.sge().lkey, mr->lkey);
    // It moves with what it is to get back.
    std::future<void> second = region.deregister_async(fixture.manager.engine());
    MemoryRegion moved(std::move(region));
    test::thrown(std::errc::device_or_resource_busy, [&] { second.get(); });
    check_is_empty(region);
    CHECK(moved.raw() == mr);
    moved.deregister();
    check_is_empty(moved);
    reset_sim();
}

// Nobody is left to get the region back: it is tried once more, and the failure of that counted.
void check_failed_and_dropped(Fixture &fixture, int failing, uint64_t expected) {
    const uint64_t before = amr::destructor_failures();
    amr::set_failure_handler(note_failure);
    ibv_mr *mr;
    {
        MemoryRegion region = fixture.region();
        mr = region.raw();
        CHECK_EQ(sim_configure(("dereg_fail_first=" + std::to_string(failing)).c_str()), 0);
        sim_gate_close(SIM_DEREG);
        (void)region.deregister_async(fixture.manager.engine());
    }
    sim_gate_open();
    fixture.manager.engine().drain();
    CHECK_EQ(amr::destructor_failures(), before + expected);
    if (expected > 0)
        CHECK_EQ(ibv_dereg_mr(mr), 0);
    amr::set_failure_handler(nullptr);
    reset_sim();
}

// The same, but the region goes after the failure has arrived.
void check_failed_then_dropped(Fixture &fixture) {
    MemoryRegion region = fixture.region();
    CHECK_EQ(sim_configure("dereg_fail_first=1"), 0);
    std::future<void> future = region.deregister_async(fixture.manager.engine());
    test::thrown(std::errc::device_or_resource_busy, [&] { future.get(); });
    CHECK(region);
    reset_sim();
}

// A refusal changes nothing.
void check_refused_async(Fixture &fixture) {
    amr::Engine engine(1, 1);
    MemoryRegion running = fixture.region(), queued = fixture.region(), region = fixture.region();
    sim_gate_close(SIM_DEREG);
    std::future<void> one = running.deregister_async(engine);
    wait_running(1);
    std::future<void> two = queued.deregister_async(engine);
    const ibv_mr *mr = region.raw();
    test::thrown(std::errc::resource_unavailable_try_again,
                 [&] { (void)region.deregister_async(engine); });
    CHECK(region.raw() == mr);
    sim_gate_open();
    one.get();
    two.get();
    region.deregister();
}

} // namespace

int main() {
    test::Sim sim;
    Fixture fixture;

    check_accessors(fixture);
    check_bounds(fixture);
    check_long_region(fixture);
    check_moves(fixture);
    check_release(fixture);
    check_failed_deregistration(fixture);
    check_failed_destructor(fixture);
    check_async(fixture);
    check_failed_async(fixture);
    check_failed_and_dropped(fixture, 1, 0);
    check_failed_and_dropped(fixture, 2, 1);
    check_failed_then_dropped(fixture);
    check_refused_async(fixture);
    return 0;
}
