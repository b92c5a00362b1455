// SPDX-License-Identifier: MIT OR Apache-2.0
#include "ways.hpp"

#include <cerrno>
#include <cstring>
#include <future>
#include <thread>

namespace bench {

namespace {

ibv_mr *register_blocking(const Device &device, char *data, std::size_t length) {
    ibv_mr *mr = ibv_reg_mr(device.pd(), data, length, Device::access);
    if (mr == nullptr)
        check(errno, "ibv_reg_mr");
    return mr;
}

void deregister_all(std::vector<ibv_mr *> &regions) {
    deregister(regions);
    regions.clear();
}

} // namespace

void Blocking::acquire(const Buffers &buffers) {
    for (std::size_t i = 0; i < buffers.count; i++)
        regions_.push_back(register_blocking(device_, buffers.at(i), buffers.length));
}

void Blocking::release() {
    deregister_all(regions_);
}

void TouchFirst::acquire(const Buffers &buffers) {
    in_parallel(threads_, buffers.data, buffers.bytes(),
                [](char *data, std::size_t length) { std::memset(data, 0, length); });
    Blocking::acquire(buffers);
}

SystemCalls::SystemCalls(const Device &device, Pages pages)
    : Blocking(device, "system calls by hand"), pages_(pages) {}

void SystemCalls::acquire(const Buffers &buffers) {
    if (pages_ == Pages::huge)
        advise_huge_pages(buffers.data, buffers.bytes());
    in_parallel(all_cpus(), buffers.data, buffers.bytes(), populate);
    Blocking::acquire(buffers);
}

void ThreadEach::acquire(const Buffers &buffers) {
    regions_.resize(buffers.count);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < buffers.count; i++)
        threads.emplace_back(
            [&, i] { regions_[i] = register_blocking(device_, buffers.at(i), buffers.length); });
    for (std::thread &thread : threads)
        thread.join();
}

void ThreadEach::release() {
    deregister_all(regions_);
}

void UsualWay::acquire(const Buffers &buffers) {
    std::vector<std::future<PeerPool::Region>> futures;
    for (std::size_t i = 0; i < buffers.count; i++)
        futures.push_back(pool_.register_memory(buffers.at(i), buffers.length, Device::access));
    for (auto &future : futures)
        regions_.push_back(future.get());
}

void UsualWay::release() {
    regions_.clear();
}

Libamr::Libamr(const Device &device, unsigned workers, Pages pages)
    : Way("libamr, " + std::to_string(workers) + (workers == 1 ? " worker" : " workers")),
      device_(device), engine_(workers, depth), cq_(engine_.get(), depth),
      flags_(pages == Pages::huge ? std::uint32_t{AMR_WR_HUGEPAGE} : 0) {}

void Libamr::acquire(const Buffers &buffers) {
    std::vector<amr_wr> requests;
    for (std::size_t i = 0; i < buffers.count; i++) {
        requests.push_back(registration(device_, i, buffers.at(i), buffers.length));
        requests.back().flags = flags_;
    }
    regions_.resize(buffers.count);
    cq_.post(requests.data(), requests.size());
    cq_.read(regions_);
}

void Libamr::release() {
    std::vector<amr_wr> requests;
    for (ibv_mr *mr : regions_)
        requests.push_back(deregistration(mr));
    cq_.post(requests.data(), requests.size());
    cq_.read(regions_);
}

} // namespace bench
