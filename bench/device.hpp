// SPDX-License-Identifier: MIT OR Apache-2.0
// The device that is measured on, with memory to register.
#ifndef AMR_BENCH_DEVICE_HPP
#define AMR_BENCH_DEVICE_HPP

#include <cstddef>
#include <infiniband/verbs.h>
#include <string>
#include <vector>

namespace bench {

class Device {
  public:
    // The first device if the name is empty.
    explicit Device(const std::string &name);
    ~Device();

    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    ibv_pd *pd() const {
        return pd_;
    }

    std::string name() const;
    bool is_simulated() const;

    // Whether registered memory is really pinned, as on any device but a simulated one that must
    // not.
    bool can_pin() const;

    // Settings of the simulated device as in AMR_SIM; no effect on any other device.
    void configure(const std::string &settings) const;

    // One of the blocks of block_size bytes, all of them resident.
    void *block(std::size_t index) const;

    static constexpr std::size_t block_size = 4096;
    static constexpr int access = IBV_ACCESS_LOCAL_WRITE;

  private:
    ibv_context *context_ = nullptr;
    ibv_pd *pd_ = nullptr;
    std::vector<char> memory_;
};

// While it lives, registrations on the simulated device wait inside the device.
class ClosedGate {
  public:
    ClosedGate();
    ~ClosedGate();

    ClosedGate(const ClosedGate &) = delete;
    ClosedGate &operator=(const ClosedGate &) = delete;

    void await_inside(unsigned calls) const;
};

// Deregisters all regions, in the calling thread.
void deregister(const std::vector<ibv_mr *> &regions);

} // namespace bench

#endif
