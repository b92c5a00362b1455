// SPDX-License-Identifier: MIT OR Apache-2.0
// adopt_after: the same program, which goes on while its buffers are registered.
#include <amr/amr.hpp>
#include <cerrno>
#include <cstring>
#include <infiniband/verbs.h>
#include <iostream>
#include <system_error>
#include <vector>

struct Buffer {
    std::vector<char> data;
    std::shared_future<amr::shared_region> mr; // ends before the data
};

const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;

void prepare_peers() {} // what the program has to do besides

std::vector<Buffer> register_buffers(amr::AsyncMRManager &manager) {
    std::vector<Buffer> buffers(8);
    for (Buffer &buffer : buffers) {
        buffer.data.resize(4 << 20);
        buffer.mr = manager.register_memory(buffer.data, amr::access(rights)).share();
    }
    return buffers;
}

int main() try {
    ibv_device **devices = ibv_get_device_list(nullptr);
    ibv_context *context = devices && devices[0] ? ibv_open_device(devices[0]) : nullptr;
    ibv_pd *pd = context ? ibv_alloc_pd(context) : nullptr;
    if (pd == nullptr)
        throw std::system_error(ENODEV, std::generic_category(), "RDMA device");
    {
        amr::AsyncMRManager manager(amr::RDMAContext::borrow(pd));
        std::vector<Buffer> buffers = register_buffers(manager);
        prepare_peers(); // while they are registered
        for (Buffer &buffer : buffers)
            std::cout << "lkey " << buffer.mr.get()->lkey() << "\n";
    }
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
    ibv_free_device_list(devices);
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
