// SPDX-License-Identifier: MIT OR Apache-2.0
// adopt_before: a program that registers its buffers with plain ibv_reg_mr, before it can go on.
#include <cerrno>
#include <cstring>
#include <infiniband/verbs.h>
#include <iostream>
#include <system_error>
#include <vector>

struct Buffer {
    std::vector<char> data;
    ibv_mr *mr;
};

const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;

void prepare_peers() {} // what the program has to do besides

std::vector<Buffer> register_buffers(ibv_pd *pd) {
    std::vector<Buffer> buffers(8);
    for (Buffer &buffer : buffers) {
        buffer.data.resize(4 << 20);
        buffer.mr = ibv_reg_mr(pd, buffer.data.data(), buffer.data.size(), rights);
        if (buffer.mr == nullptr)
            throw std::system_error(errno, std::generic_category(), "ibv_reg_mr");
    }
    return buffers;
}

int main() try {
    ibv_device **devices = ibv_get_device_list(nullptr);
    ibv_context *context = devices && devices[0] ? ibv_open_device(devices[0]) : nullptr;
    ibv_pd *pd = context ? ibv_alloc_pd(context) : nullptr;
    if (pd == nullptr)
        throw std::system_error(ENODEV, std::generic_category(), "RDMA device");
    std::vector<Buffer> buffers = register_buffers(pd);
    prepare_peers();
    for (Buffer &buffer : buffers)
        std::cout << "lkey " << buffer.mr->lkey << "\n";
    for (Buffer &buffer : buffers)
        ibv_dereg_mr(buffer.mr);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
    ibv_free_device_list(devices);
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
