// SPDX-License-Identifier: MIT OR Apache-2.0
//
// async_mr_manager [DEVICE]: five buffers of 4 MiB are registered by two workers while the main
// thread goes on; then each of them is the target of an RDMA WRITE.
#include "common/rc.h"
#include <amr/amr.hpp>
#include <cstdint>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

const std::size_t num_buffers = 5;
const std::size_t buffer_size = 4 * 1024 * 1024;

const amr::access access_flags = amr::access::local_write | amr::access::remote_write |
                                 amr::access::remote_read | amr::access::remote_atomic;

using region_future = std::future<amr::shared_region>;

// What the main thread has to do meanwhile.
unsigned long work_until_ready(const std::vector<region_future> &futures) {
    unsigned long steps = 0;
    for (const region_future &future : futures) {
        while (future.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
            steps++;
    }
    return steps;
}

// Brings the regions that could be registered, and says why others could not.
std::vector<amr::shared_region> collect(std::vector<region_future> &futures) {
    std::vector<amr::shared_region> regions;
    for (std::size_t i = 0; i < futures.size(); i++) {
        try {
            amr::shared_region region = futures[i].get();
            std::cout << "buffer " << i << ": lkey " << region->lkey() << ", rkey "
                      << region->rkey() << ", " << region->length() << " bytes\n";
            regions.push_back(region);
        } catch (const amr::error &error) {
            std::cerr << "buffer " << i << ": " << error.explanation() << "\n";
        }
    }
    return regions;
}

// Fills the second half of each region from the first half of the next one, over the network.
void write_to_each(const amr::RDMAContext &context,
                   const std::vector<amr::shared_region> &regions) {
    const std::size_t half = buffer_size / 2;
    rc connection[2];
    rc_open_loop(connection, context.pd());
    for (std::size_t i = 0; i < regions.size(); i++) {
        const amr::MemoryRegion &from = *regions[(i + 1) % regions.size()], &to = *regions[i];
        const rc_key target = {to.sge(half, half).addr, to.rkey()};
        rc_write_sge(&connection[0], from.sge(0, half), target);
    }
    rc_close_loop(connection);
}

void verify(const std::vector<std::vector<char>> &buffers) {
    const auto half = static_cast<std::ptrdiff_t>(buffer_size / 2);
    for (std::size_t i = 0; i < buffers.size(); i++) {
        const auto &from = buffers[(i + 1) % buffers.size()], &to = buffers[i];
        if (!std::equal(from.begin(), from.begin() + half, to.begin() + half))
            throw std::runtime_error("buffer " + std::to_string(i) + " is wrong");
    }
}

void run(const amr::RDMAContext &context) {
    // The memory first, so that it is there as long as anything may write to it.
    std::vector<std::vector<char>> buffers(num_buffers);
    amr::AsyncMRManager mr_manager(context, 2);
    std::vector<region_future> futures;

    for (std::size_t i = 0; i < num_buffers; i++) {
        buffers[i].resize(buffer_size);
        std::iota(buffers[i].begin(), buffers[i].end(), static_cast<char>(i));
        futures.push_back(mr_manager.register_memory(buffers[i], access_flags));
    }
    std::cout << num_buffers << " registrations submitted; the main thread goes on\n";
    std::cout << "and made " << work_until_ready(futures) << " steps until all were ready\n";

    std::vector<amr::shared_region> registered = collect(futures);
    if (registered.size() != num_buffers)
        throw std::runtime_error("not all buffers could be registered");
    write_to_each(context, registered);
    verify(buffers);
    std::cout << "each of them was written to by RDMA, with its own keys\n";
    registered.clear(); // deregisters them
}

} // namespace

int main(int argc, char **argv) {
    try {
        run(argc > 1 ? amr::RDMAContext(argv[1]) : amr::RDMAContext());
        return 0;
    } catch (const std::exception &error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
