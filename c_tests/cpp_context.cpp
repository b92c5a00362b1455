// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::RDMAContext: what it opens, what it says when it cannot, and who closes it. Each step of the
// device fails once: this program's own functions stand before those of libibverbs.
#include "cpp.hpp"

#include <dlfcn.h>
#include <new>

namespace {

enum class Step { none, list, open, pd, dealloc, close };

Step failing = Step::none;
int failing_errno = 0;
std::uint64_t failures_heard = 0;

template <typename Function> Function *next(const char *name) {
    void *symbol = dlsym(RTLD_NEXT, name);
    Function *function;
    CHECK(symbol != nullptr);
    std::memcpy(&function, &symbol, sizeof(function));
    return function;
}

bool fails(Step step) {
    if (failing != step)
        return false;
    errno = failing_errno;
    return true;
}

} // namespace

#define REAL(name) next<decltype(name)>(#name)

extern "C" {

ibv_device **ibv_get_device_list(int *count) {
    return fails(Step::list) ? nullptr : REAL(ibv_get_device_list)(count);
}

ibv_context *ibv_open_device(ibv_device *device) {
    return fails(Step::open) ? nullptr : REAL(ibv_open_device)(device);
}

ibv_pd *ibv_alloc_pd(ibv_context *context) {
    return fails(Step::pd) ? nullptr : REAL(ibv_alloc_pd)(context);
}

int ibv_dealloc_pd(ibv_pd *pd) {
    const int status = REAL(ibv_dealloc_pd)(pd);
    return fails(Step::dealloc) ? failing_errno : status;
}

int ibv_close_device(ibv_context *context) {
    const int status = REAL(ibv_close_device)(context);
    return fails(Step::close) ? -1 : status;
}

} // extern "C"

namespace {

void open_any() {
    amr::RDMAContext context;
}

void check_opening() {
    amr::RDMAContext first;
    amr::RDMAContext named("sim0");
    CHECK(first.context() != nullptr && first.pd() != nullptr);
    CHECK(first.pd() != named.pd());
    CHECK(first.pd()->context == first.context());
    CHECK_STR(ibv_get_device_name(named.context()->device), "sim0");
    CHECK_EQ(amr::RDMAContext::devices().size(), 1);
    CHECK_STR(amr::RDMAContext::devices()[0].c_str(), "sim0");
}

void check_unknown_name() {
    const amr::error one =
        test::thrown(std::errc::no_such_device, [] { amr::RDMAContext context("mlx5_0"); });
    CHECK_STR(one.what(), "there is no RDMA device named \"mlx5_0\"; there is sim0");
    const amr::error empty =
        test::thrown(std::errc::no_such_device, [] { amr::RDMAContext context(""); });
    CHECK_STR(empty.what(), "there is no RDMA device named \"\"; there is sim0");
    CHECK_EQ(sim_configure("devices=3"), 0);
    const amr::error many =
        test::thrown(std::errc::no_such_device, [] { amr::RDMAContext context("mlx5_0"); });
    CHECK_STR(many.what(), "there is no RDMA device named \"mlx5_0\"; there are sim0, sim1, sim2");
    reset_sim();
}

void check_failure(Step step, int status, std::errc expected, const char *sentence) {
    failing = step;
    failing_errno = status;
    const amr::error error = test::thrown(expected, open_any);
    failing = Step::none;
    if (std::strstr(error.what(), sentence) == nullptr)
        FAIL("\"%s\" does not say \"%s\"", error.what(), sentence);
    CHECK_EQ(amr::destructor_failures(), 0);
}

void check_failures() {
    check_failure(Step::list, ENOSYS, std::errc::function_not_supported,
                  "the RDMA devices cannot be listed: ");
    check_failure(Step::open, EACCES, std::errc::permission_denied,
                  "the RDMA device sim0 cannot be opened: user ");
    check_failure(Step::open, EACCES, std::errc::permission_denied,
                  "may not read and write /dev/infiniband/uverbs0");
    check_failure(Step::open, EPERM, std::errc::operation_not_permitted,
                  "--device=/dev/infiniband/uverbs0");
    // libibverbs looked elsewhere, too, and found nothing there.
    check_failure(Step::open, ENOENT, std::errc::no_such_device,
                  "there is no /dev/infiniband/uverbs0");
    check_failure(Step::open, ENOMEM, std::errc::not_enough_memory, "out of memory");
    check_failure(Step::open, 0, std::errc::io_error, "cannot be opened");
    check_failure(Step::pd, ENOMEM, std::errc::not_enough_memory,
                  "the RDMA device sim0 gave no protection domain: out of memory");
}

void note_failure(const char *, int) {
    failures_heard++;
}

// A destructor counts and tells what it could not do.
void check_closing() {
    const amr::failure_handler before = amr::set_failure_handler(note_failure);
    for (Step step : {Step::dealloc, Step::close}) {
        failing = step;
        failing_errno = EBUSY;
        open_any();
        failing = Step::none;
    }
    CHECK_EQ(failures_heard, 2);
    CHECK_EQ(amr::destructor_failures(), 2);
    CHECK(amr::set_failure_handler(nullptr) == note_failure);
    CHECK(amr::set_failure_handler(nullptr) == before);
}

void check_moves() {
    amr::RDMAContext one;
    ibv_pd *pd = one.pd();
    amr::RDMAContext two(std::move(one));
    CHECK(one.pd() == nullptr && one.context() == nullptr);
    CHECK(two.pd() == pd);
    test::thrown(std::errc::invalid_argument, [&] { amr::AsyncMRManager manager(one, 1); });
    one = std::move(two);
    CHECK(one.pd() == pd);
    amr::RDMAContext three;
    const uint64_t open = sim_counts().live_contexts;
    three = std::move(one);
    CHECK(three.pd() == pd);
    CHECK_EQ(sim_counts().live_contexts, open - 1);
}

// The application's own PD is used, and stays open.
void check_borrowing() {
    struct device device = open_device();
    static char memory[4096];
    {
        amr::RDMAContext context = amr::RDMAContext::borrow(device.pd);
        CHECK(context.pd() == device.pd && context.context() == device.context);
        amr::AsyncMRManager manager(context, 1);
        CHECK(manager.register_memory(memory, test::rights).get()->raw()->pd == device.pd);
    }
    close_device(device);
    test::thrown(std::errc::invalid_argument, [] { amr::RDMAContext::borrow(nullptr); });
}

} // namespace

int main() {
    test::Sim sim;

    check_opening();
    check_unknown_name();
    check_failures();
    check_moves();
    check_borrowing();
    check_closing();
    return 0;
}
