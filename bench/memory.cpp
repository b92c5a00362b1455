// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory: what a queued request occupies, and whether anything grows with the requests done.
#include "bench.hpp"
#include "libamr.hpp"
#include "machine.hpp"
#include "peer_pool.hpp"
#include <algorithm>
#include <future>
#include <vector>

namespace bench {

namespace {

constexpr std::size_t queued = 200'000;
constexpr unsigned queue_depth = 262'144;
constexpr double queued_limit = 256;

constexpr std::size_t batch = 1000;
constexpr std::size_t looks = 10;
constexpr double mebibyte = 1 << 20;
constexpr double growth_limit = 1;

// Waits for the completions, and frees what the requests made.
void complete(CompletionQueue &cq, std::size_t count) {
    std::vector<ibv_mr *> regions(count);
    cq.read(regions);
    deregister(regions);
}

// Bytes for each request while all of them wait. The engine and the completion queue count too,
// with all their pages: so they went once round before.
double queued_by_libamr(const std::vector<amr_wr> &requests) {
    const double before = resident_bytes();
    const Engine engine(pool_workers, queue_depth);
    CompletionQueue cq(engine.get(), static_cast<std::uint32_t>(requests.size()));
    for (int i = 0; i < 2; i++) {
        cq.post(requests.data(), requests.size());
        complete(cq, requests.size());
    }
    double after = 0;
    {
        const ClosedGate gate;
        cq.post(requests.data(), requests.size());
        gate.await_inside(pool_workers);
        after = resident_bytes();
    }
    complete(cq, requests.size());
    return (after - before) / static_cast<double>(requests.size());
}

// The same for the usual way, with its futures.
double queued_by_peer(const Device &device, std::size_t count) {
    const double before = resident_bytes();
    PeerPool pool(device.pd(), pool_workers);
    std::vector<std::future<PeerPool::Region>> futures(count);
    double after = 0;
    {
        const ClosedGate gate;
        for (std::size_t i = 0; i < count; i++)
            futures[i] = pool.register_memory(device.block(i), Device::block_size, Device::access);
        gate.await_inside(pool_workers);
        after = resident_bytes();
    }
    for (auto &future : futures)
        future.get();
    return (after - before) / static_cast<double>(count);
}

void measure_queued(const Bench &bench) {
    const std::vector<amr_wr> requests = registrations(bench.device, queued);
    Series libamr, peer;
    // The memory of the device itself grows here.
    queued_by_libamr(requests);
    bench.rounds("queued requests", [&] {
        libamr.add(queued_by_libamr(requests));
        peer.add(queued_by_peer(bench.device, queued));
    });
    bench.add({"queued request",
               "bytes",
               {"amr_post", libamr},
               std::nullopt,
               bench.at_most(queued_limit)});
    bench.add({"queued request", "bytes", {"usual way", peer}, std::nullopt, std::nullopt});
}

// Registers and deregisters again and again until so many requests have completed.
class Traffic {
  public:
    explicit Traffic(const Device &device)
        : engine_(pool_workers, queue_depth), cq_(engine_.get(), batch),
          registrations_(registrations(device, batch)), deregistrations_(batch, amr_wr{}),
          regions_(batch) {}

    void run(std::size_t requests) {
        for (std::size_t done = 0; done < requests; done += 2 * batch) {
            cq_.post(registrations_.data(), batch);
            cq_.read(regions_);
            for (std::size_t i = 0; i < batch; i++) {
                deregistrations_[i].opcode = AMR_OP_DEREG_MR;
                deregistrations_[i].op.dereg_mr.mr = regions_[i];
            }
            cq_.post(deregistrations_.data(), batch);
            cq_.read(regions_);
        }
    }

  private:
    Engine engine_;
    CompletionQueue cq_;
    std::vector<amr_wr> registrations_;
    std::vector<amr_wr> deregistrations_;
    std::vector<ibv_mr *> regions_;
};

void measure_growth(const Bench &bench) {
    const std::size_t requests = bench.size(10'000'000, 1'000'000);
    const std::size_t part = requests / looks;
    Traffic traffic(bench.device);
    // Each slot of the queues, and the device's own memory, is used for the first time here.
    traffic.run(std::max<std::size_t>(part, 2 * queue_depth));
    const double before = resident_bytes();
    Series growth;
    for (std::size_t i = 1; i <= looks; i++) {
        bench.step("growth", i, looks);
        traffic.run(part);
        growth.add((resident_bytes() - before) / mebibyte);
    }
    bench.add({"growth over " + std::to_string(requests) + " requests",
               "MiB",
               {"amr_post", growth},
               std::nullopt,
               bench.at_most(growth_limit)});
}

} // namespace

void run_memory(const Bench &bench) {
    measure_queued(bench);
    measure_growth(bench);
}

} // namespace bench
