// SPDX-License-Identifier: MIT OR Apache-2.0
// register_future [DEVICE]: registers memory while the main thread goes on.
#include <amr/amr.hpp>
#include <iostream>
#include <vector>

int main(int argc, char **argv) try {
    std::vector<char> buffer(16 << 20);
    amr::RDMAContext context = argc > 1 ? amr::RDMAContext(argv[1]) : amr::RDMAContext();
    amr::AsyncMRManager manager(context, 2); // two workers

    auto future =
        manager.register_memory(buffer, amr::access::local_write | amr::access::remote_read);
    std::cout << "the main thread goes on\n";
    std::shared_ptr<amr::MemoryRegion> region = future.get(); // or throws, and says why
    std::cout << region->length() << " bytes registered, lkey " << region->lkey() << "\n";
    ibv_sge sge = region->sge(4096, 512); // for ibv_post_send() and its like
    std::cout << sge.length << " bytes of it from " << sge.addr << "\n";
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
