// SPDX-License-Identifier: MIT OR Apache-2.0
// A small program as a user would write it: a device, a manager, a future.
#include <amr/amr.hpp>

#include <iostream>
#include <vector>

int main() {
    std::vector<char> buffer(1 << 16);
    try {
        amr::RDMAContext context;
        amr::AsyncMRManager manager(context, 1);
        auto future = manager.register_memory(buffer, amr::access::local_write);
        std::cout << "libamr " << amr_version() << ": lkey " << future.get()->lkey() << '\n';
        return 0;
    } catch (const amr::error &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
