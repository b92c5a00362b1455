// SPDX-License-Identifier: MIT OR Apache-2.0
#include "device.hpp"

#include "../c_tests/sim/sim.h"
#include <cerrno>
#include <memory>
#include <stdexcept>
#include <system_error>

namespace bench {

namespace {

constexpr std::size_t blocks = 256;
constexpr int gate_timeout_ms = 10000;

ibv_context *open_device(const std::string &name) {
    int count = 0;
    const std::unique_ptr<ibv_device *, decltype(&ibv_free_device_list)> list(
        ibv_get_device_list(&count), ibv_free_device_list);
    for (int i = 0; i < count; i++) {
        if (name.empty() || name == ibv_get_device_name(list.get()[i]))
            return ibv_open_device(list.get()[i]);
    }
    errno = ENODEV;
    return nullptr;
}

} // namespace

Device::Device(const std::string &name)
    : context_(open_device(name)), memory_((blocks + 1) * block_size, 'x') {
    if (context_ == nullptr)
        throw std::system_error(errno, std::generic_category(), "cannot open an RDMA device");
    pd_ = ibv_alloc_pd(context_);
    if (pd_ == nullptr) {
        const int error = errno;
        ibv_close_device(context_);
        throw std::system_error(error, std::generic_category(), "ibv_alloc_pd");
    }
}

Device::~Device() {
    ibv_dealloc_pd(pd_);
    ibv_close_device(context_);
}

std::string Device::name() const {
    return ibv_get_device_name(context_->device);
}

bool Device::is_simulated() const {
    return sim_present() != 0;
}

bool Device::can_pin() const {
    return !is_simulated() || sim_can_pin() != 0;
}

void Device::configure(const std::string &settings) const {
    if (is_simulated() && sim_configure(settings.c_str()) != 0)
        throw std::runtime_error("the simulated device does not understand '" + settings + "'");
}

void *Device::block(std::size_t index) const {
    const auto start = reinterpret_cast<std::uintptr_t>(memory_.data());
    const std::uintptr_t aligned = (start + block_size - 1) / block_size * block_size;
    return reinterpret_cast<void *>(aligned + index % blocks * block_size);
}

ClosedGate::ClosedGate() {
    sim_gate_close(SIM_REG);
}

ClosedGate::~ClosedGate() {
    sim_gate_open();
}

void ClosedGate::await_inside(unsigned calls) const {
    if (sim_wait_running(calls, gate_timeout_ms) != 0)
        throw std::runtime_error("the workers did not reach the device");
}

void deregister(const std::vector<ibv_mr *> &regions) {
    for (ibv_mr *mr : regions) {
        const int error = ibv_dereg_mr(mr);
        if (error != 0)
            throw std::system_error(error, std::generic_category(), "ibv_dereg_mr");
    }
}

} // namespace bench
