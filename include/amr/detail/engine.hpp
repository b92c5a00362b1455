// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::Engine: a pool of worker threads.
#ifndef AMR_DETAIL_ENGINE_HPP
#define AMR_DETAIL_ENGINE_HPP

#include "error.hpp"
#include "failure.hpp"
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace amr {

namespace detail {

// Runs `call`, which waits for an engine, on a thread that is none of its workers.
template <typename Call> void run_elsewhere(Call call, const char *what) noexcept {
    try {
        std::thread(std::move(call)).detach();
    } catch (...) {
        report_failure(what, EAGAIN);
    }
}

inline void destroy(amr_engine *engine) noexcept {
    const int status = amr_destroy_engine(engine);
    if (status == EDEADLK) // the last owner was a callback of the engine
        run_elsewhere([engine] { amr_destroy_engine(engine); }, "amr_destroy_engine");
    else if (status != 0 && status != EPERM) // a forked child has nothing to destroy
        report_failure("amr_destroy_engine", status);
}

// What engines, managers and completion queues share.
struct engine_core {
    amr_engine *engine;
    bool is_owned;

    engine_core(amr_engine *made, bool owned) noexcept : engine(made), is_owned(owned) {}
    engine_core(const engine_core &) = delete;
    engine_core &operator=(const engine_core &) = delete;

    ~engine_core() {
        if (is_owned && engine != nullptr)
            destroy(engine);
    }
};

// What is wrong with the attributes, as far as can be seen.
inline std::string fault_of(const amr_engine_attr &attr) {
    std::string fault = out_of_range("workers", attr.workers, 0, AMR_MAX_WORKERS) +
                        out_of_range("queue_depth", attr.queue_depth, 0, AMR_MAX_QUEUE_DEPTH);
    if (fault.empty() && attr.cpus != nullptr)
        fault = std::string("; cpus is \"") + attr.cpus +
                "\", and must be a list like \"0-3,8\" of CPUs that the process may use";
    return fault;
}

inline int milliseconds(std::chrono::milliseconds timeout) noexcept {
    const auto limit = std::numeric_limits<int>::max();
    if (timeout.count() < 0)
        return -1;
    return timeout.count() > limit ? limit : static_cast<int>(timeout.count());
}

} // namespace detail

// As a timeout: no limit.
constexpr std::chrono::milliseconds forever() noexcept {
    return std::chrono::milliseconds(-1);
}

// A pool of worker threads with a submission queue; serves any device. Can be moved, not copied.
//
// Managers and completion queues that are made on it share its ownership; the last of them joins
// the threads. Requests of a manager that are still queued then complete with
// std::errc::operation_canceled, running ones as they do.
class Engine {
  public:
    // `workers`: threads, 1 to AMR_MAX_WORKERS; 0: AMR_WORKERS or the number of CPUs, at most 8.
    // `queue_depth`: requests that can wait, 1 to AMR_MAX_QUEUE_DEPTH; 0: AMR_QUEUE_DEPTH or 16384.
    // `cpus`: where the workers run, as a list like "0-3,8"; nullptr: where the process
    // could when the library was loaded.
    // Throws amr::error as amr_create_engine(3) says.
    explicit Engine(unsigned workers = 0, unsigned queue_depth = 0, const char *cpus = nullptr)
        : core_(std::make_shared<detail::engine_core>(nullptr, true)) {
        amr_engine_attr attr = {};
        attr.size = sizeof(attr);
        attr.workers = workers;
        attr.queue_depth = queue_depth;
        attr.cpus = cpus;
        core_->engine = amr_create_engine(&attr);
        if (core_->engine == nullptr) {
            const int status = detail::reason();
            detail::check(status, "amr_create_engine",
                          status == EINVAL ? detail::fault_of(attr) : std::string());
        }
    }

    // The one that the C functions use, which lives as long as the process.
    static Engine default_engine() {
        amr_engine *engine = amr_default_engine();
        if (engine == nullptr)
            detail::check(detail::reason(), "amr_default_engine");
        return Engine(std::make_shared<detail::engine_core>(engine, false));
    }

    Engine(Engine &&) noexcept = default;
    Engine &operator=(Engine &&) noexcept = default;
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;
    ~Engine() = default;

    // Waits until nothing is queued or running, on `pd` or on any. Returns false if the time was
    // over before. Throws EDEADLK in a callback of this engine.
    bool drain(std::chrono::milliseconds timeout = forever(), ibv_pd *pd = nullptr) const {
        const int status = amr_drain(native(), pd, detail::milliseconds(timeout));
        if (status == ETIMEDOUT)
            return false;
        detail::check(status, "amr_drain");
        return true;
    }

    // What it has done and is doing.
    amr_stats stats() const {
        amr_stats stats = {};
        stats.size = sizeof(stats);
        detail::check(amr_query_stats(native(), &stats), "amr_query_stats");
        return stats;
    }

    // Whether others share it.
    bool is_shared() const noexcept {
        return core_.use_count() > 1;
    }

    // For calls of the C API.
    amr_engine *native() const {
        return core()->engine;
    }

    // For the other classes: what they share. Throws EINVAL once it was moved from.
    const std::shared_ptr<detail::engine_core> &core() const {
        if (!core_)
            throw error(EINVAL, "this Engine, or its owner, was moved from");
        return core_;
    }

  private:
    explicit Engine(std::shared_ptr<detail::engine_core> core) : core_(std::move(core)) {}

    std::shared_ptr<detail::engine_core> core_;
};

} // namespace amr

#endif // AMR_DETAIL_ENGINE_HPP
