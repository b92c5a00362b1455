// SPDX-License-Identifier: MIT OR Apache-2.0
// register_future [DEVICE]: a std::future for a registration, made of the C call.
#include <amr/amr.h>
#include <cstring>
#include <future>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <vector>

using region_future = std::future<ibv_mr *>;

// Called on a thread of the library, once.
extern "C" void fulfil(ibv_mr *mr, int status, void *ctx) {
    std::unique_ptr<std::promise<ibv_mr *>> promise(static_cast<std::promise<ibv_mr *> *>(ctx));
    if (status == 0)
        promise->set_value(mr);
    else
        promise->set_exception(std::make_exception_ptr(
            std::system_error(status, std::generic_category(), amr_status_str(status))));
}

region_future register_memory(ibv_pd *pd, std::vector<char> &buffer, int access) {
    std::unique_ptr<std::promise<ibv_mr *>> promise(new std::promise<ibv_mr *>);
    region_future future = promise->get_future();
    int error = amr_register_async(pd, buffer.data(), buffer.size(), access, fulfil, promise.get());
    if (error)
        throw std::system_error(error, std::generic_category(), "amr_register_async");
    promise.release(); // the callback's from here on
    return future;
}

ibv_context *open_device(const char *name) {
    ibv_device **list = ibv_get_device_list(nullptr), **device = list;
    while (device && *device && name && std::strcmp(ibv_get_device_name(*device), name))
        device++;
    ibv_context *context = device && *device ? ibv_open_device(*device) : nullptr;
    if (list)
        ibv_free_device_list(list);
    if (!context)
        throw std::runtime_error("no RDMA device can be opened");
    return context;
}

int main(int argc, char **argv) try {
    ibv_context *context = open_device(argc > 1 ? argv[1] : nullptr);
    ibv_pd *pd = ibv_alloc_pd(context);
    std::vector<char> buffer(16 << 20);

    region_future future = register_memory(pd, buffer, IBV_ACCESS_LOCAL_WRITE);
    std::cout << "the main thread goes on\n";
    ibv_mr *mr = future.get();
    std::cout << mr->length << " bytes registered, lkey " << mr->lkey << "\n";

    ibv_dereg_mr(mr);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
