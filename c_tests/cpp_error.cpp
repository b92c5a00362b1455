// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::error and amr::access: comparable with std::errc, with the diagnosis and its sentence.
#include "cpp.hpp"

#include <cstring>
#include <type_traits>

namespace {

using amr::access; // here, since POSIX has a function of that name

static_assert(!std::is_convertible<int, access>::value, "bits do not become rights by accident");
static_assert(!std::is_convertible<access, int>::value, "nor the other way");
static_assert(std::is_nothrow_copy_constructible<amr::error>::value, "as an exception must be");
static_assert((access::local_write | access::remote_read) ==
                  access(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ),
              "the bits of verbs");
static_assert(amr::includes(test::rights, access::remote_read), "all of it");
static_assert(!amr::includes(test::rights, access::remote_read | access::remote_atomic), "a part");

void check_category() {
    const amr::error error(ENOMEM, "no room");
    CHECK(error.code() == std::errc::not_enough_memory);
    CHECK(error.code() != std::errc::invalid_argument);
    CHECK(error.code() == std::error_code(ENOMEM, amr::category()));
    CHECK_EQ(error.code().value(), ENOMEM);
    CHECK_STR(error.code().category().name(), "amr");
    CHECK_STR(error.code().message().c_str(), amr_status_str(ENOMEM));
    CHECK_STR(error.what(), "no room");
    CHECK_EQ(error.diagnosis(), AMR_DIAG_NONE);
    // As any user of the standard library would catch it.
    try {
        throw error;
    } catch (const std::system_error &caught) {
        CHECK_STR(caught.what(), "no room");
    }
}

// What a device says, with what libamr found out about it.
void check_diagnosis() {
    amr::RDMAContext context;
    amr::AsyncMRManager manager(context, 1);
    static char memory[2 * 4096];

    sim_fail_range(memory, sizeof(memory), EFAULT);
    auto future = manager.register_memory(memory, test::rights);
    const amr::error error = test::thrown(std::errc::bad_address, [&] { future.get(); });
    CHECK_EQ(error.diagnosis(), AMR_DIAG_RANGE);
    CHECK_EQ(error.diagnosis_value(), sizeof(memory));
    CHECK(std::strstr(error.what(), "the 8192 bytes are mapped, and yet") != nullptr);
    CHECK_STR(error.explanation(), error.what());
    reset_sim();
}

void check_access() {
    access set = access::local_read;
    set |= access::remote_atomic;
    set |= access::local_write;
    CHECK(set == (access::local_write | access::remote_atomic));
    CHECK((set & access::remote_atomic) == access::remote_atomic);
    CHECK_EQ(static_cast<unsigned>(access::relaxed_ordering), IBV_ACCESS_RELAXED_ORDERING);
}

void check_text(const amr::error &error, const char *text) {
    if (std::strstr(error.what(), text) == nullptr)
        FAIL("\"%s\" does not say \"%s\"", error.what(), text);
}

// What is out of its range is named, with the range.
void check_ranges() {
    amr::RDMAContext context;

    check_text(test::thrown(std::errc::invalid_argument, [] { amr::Engine(65); }),
               "workers is 65, and can be 0 to 64");
    check_text(test::thrown(std::errc::invalid_argument,
                            [&] { amr::AsyncMRManager manager(context, 1, (1u << 20) + 1); }),
               "queue_depth is 1048577, and can be 0 to 1048576");
    check_text(test::thrown(std::errc::invalid_argument, [] { amr::Engine(1, 1, "0-x"); }),
               "cpus is \"0-x\"");
    check_text(test::thrown(std::errc::invalid_argument,
                            [&] { amr::CompletionQueue queue(context, 1u << 30); }),
               "capacity is 1073741824, and can be 1 to 1048576");
    check_text(
        test::thrown(std::errc::invalid_argument, [&] { amr::CompletionQueue queue(context, 0); }),
        "capacity is 0, and can be 1 to 1048576");
}

// A child is told whose the handles are.
void check_fork() {
    amr::RDMAContext context;
    amr::AsyncMRManager manager(context, 1);
    static char memory[4096];
    const pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        const amr::error error = test::thrown(std::errc::operation_not_permitted, [&] {
            auto future = manager.register_memory(memory, test::rights);
        });
        check_text(error, "before fork() belongs to the parent process; make a new one");
        check_text(amr::error(EPERM, amr_status_str(EPERM)), "fork() and belongs to the parent");
        exit_child(0);
    }
    check_child(child);
}

// They reach the device as they are, also those that have no name.
void check_bits_arrive() {
    amr::RDMAContext context;
    amr::AsyncMRManager manager(context, 1);
    static char memory[4096];
    struct sim_call call;
    const access wanted = test::rights | access::relaxed_ordering | access(IBV_ACCESS_MW_BIND);

    sim_record(1);
    const auto region = manager.register_memory(memory, wanted).get();
    manager.engine().drain();
    CHECK_EQ(sim_calls(&call, 1), 1);
    CHECK(call.mr == region->raw());
    CHECK_EQ(call.access, static_cast<unsigned>(wanted));
    sim_record(0);
}

} // namespace

int main() {
    test::Sim sim;

    check_category();
    check_access();
    check_diagnosis();
    check_bits_arrive();
    check_ranges();
    check_fork();
    return 0;
}
