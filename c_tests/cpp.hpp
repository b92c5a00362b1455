// SPDX-License-Identifier: MIT OR Apache-2.0
// What the tests of amr.hpp share.
#ifndef AMR_TEST_CPP_HPP
#define AMR_TEST_CPP_HPP

#include "device.h"
#include "process.h"

#include <amr/amr.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace test {

const amr::access rights =
    amr::access::local_write | amr::access::remote_read | amr::access::remote_write;

// Fails unless `call` throws an amr::error that compares equal to `expected`; gives it back.
template <typename Call> amr::error thrown(std::errc expected, Call call) {
    try {
        call();
    } catch (const amr::error &error) {
        if (error.code() != expected)
            FAIL("threw %s (%d)", error.what(), error.code().value());
        return error;
    } catch (const std::exception &error) {
        FAIL("threw %s, which is not an amr::error", error.what());
    }
    FAIL("nothing was thrown");
}

// Descriptors that are open, but those with which the simulated device pins.
inline int count_own_fds() {
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir != nullptr);
    int count = 0;
    while (const struct dirent *entry = readdir(dir)) {
        char target[64] = "";
        const ssize_t length = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
        count += length > 0 && std::string(target) != "anon_inode:[io_uring]";
    }
    closedir(dir);
    return count;
}

// All that the process has of the device and of descriptors.
struct Account {
    uint64_t contexts, pds, mrs;
    int fds;

    static Account now() {
        const struct sim_counts counts = sim_counts();
        return {counts.live_contexts, counts.live_pds, counts.live_mrs, count_own_fds()};
    }

    void check_equal(const Account &other) const {
        CHECK_EQ(contexts, other.contexts);
        CHECK_EQ(pds, other.pds);
        CHECK_EQ(mrs, other.mrs);
        CHECK_EQ(fds, other.fds);
    }
};

// The simulated device, of which nothing may be left at the end.
class Sim {
  public:
    Sim() {
        if (!sim_present())
            no_device("not the simulated device");
        reset_sim();
        // What lives as long as the process.
        amr::Engine::default_engine();
        close_device(open_device());
        before_ = Account::now();
    }

    ~Sim() {
        reset_sim();
        // A region of which nobody waits for the end may still be going.
        amr::Engine::default_engine().drain();
        Account::now().check_equal(before_);
    }

  private:
    Account before_;
};

// Waits for what another thread does soon.
template <typename Condition> void await(Condition condition) {
    while (!condition())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

inline void await_mrs(uint64_t count) {
    await([count] { return sim_counts().live_mrs == count; });
}

} // namespace test

#endif
