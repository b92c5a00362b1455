// SPDX-License-Identifier: MIT OR Apache-2.0
// A small program as a user would write it: one call, and a callback.
#include <amr/amr.h>

#include <future>
#include <iostream>
#include <vector>

static void registered(struct ibv_mr *mr, int status, void *ctx) {
    if (status)
        std::cerr << amr_status_str(status) << '\n';
    static_cast<std::promise<struct ibv_mr *> *>(ctx)->set_value(mr);
}

int main() {
    struct ibv_device **devices = ibv_get_device_list(nullptr);
    struct ibv_context *context = devices && devices[0] ? ibv_open_device(devices[0]) : nullptr;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : nullptr;
    std::vector<char> buffer(1 << 16);
    std::promise<struct ibv_mr *> promise;

    if (!pd || amr_register_async(pd, buffer.data(), buffer.size(), IBV_ACCESS_LOCAL_WRITE,
                                  registered, &promise) != 0) {
        std::cerr << "the registration was refused\n";
        return 1;
    }
    struct ibv_mr *mr = promise.get_future().get();
    if (!mr)
        return 1;
    std::cout << "libamr " << amr_version() << ": lkey " << mr->lkey << '\n';
    ibv_dereg_mr(mr);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
    ibv_free_device_list(devices);
    return 0;
}
