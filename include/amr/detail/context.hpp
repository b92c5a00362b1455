// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::RDMAContext: an open device with a protection domain.
#ifndef AMR_DETAIL_CONTEXT_HPP
#define AMR_DETAIL_CONTEXT_HPP

#include "config.hpp"
#include "device_file.hpp"
#include "error.hpp"
#include "failure.hpp"
#include <cerrno>
#include <infiniband/verbs.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace amr {

namespace detail {

// What regions, managers and contexts share: closed by the last of them.
struct context_core {
    ibv_context *context = nullptr;
    ibv_pd *pd = nullptr;
    bool is_owned = true;

    context_core() = default;
    context_core(const context_core &) = delete;
    context_core &operator=(const context_core &) = delete;

    ~context_core() {
        if (!is_owned)
            return;
        if (pd != nullptr) {
            const int status = ibv_dealloc_pd(pd);
            if (status != 0)
                report_failure("ibv_dealloc_pd", status);
        }
        if (context != nullptr && ibv_close_device(context) != 0)
            report_failure("ibv_close_device", errno);
    }
};

class device_list {
  public:
    device_list() {
        errno = 0;
        list_ = ibv_get_device_list(&count_);
        if (list_ == nullptr) {
            const int status = reason();
            throw error(status, std::string("the RDMA devices cannot be listed: ") +
                                    amr_status_str(status));
        }
    }

    device_list(const device_list &) = delete;
    device_list &operator=(const device_list &) = delete;

    ~device_list() {
        ibv_free_device_list(list_);
    }

    std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (int i = 0; i < count_; i++)
            names.push_back(ibv_get_device_name(list_[i]));
        return names;
    }

    ibv_device *first() const {
        if (count_ == 0)
            throw no_device();
        return list_[0];
    }

    ibv_device *find(const std::string &name) const {
        for (int i = 0; i < count_; i++) {
            if (name == ibv_get_device_name(list_[i]))
                return list_[i];
        }
        std::string sentence = "there is no RDMA device named \"" + name + "\"; there ";
        const char *separator = count_ > 1 ? "are " : "is ";
        for (const std::string &other : names()) {
            sentence += separator + other;
            separator = ", ";
        }
        throw error(ENODEV, count_ > 0 ? sentence : sentence + "is none");
    }

  private:
    ibv_device **list_;
    int count_ = 0;
};

inline void open(context_core &core, ibv_device *device) {
    const std::string name = ibv_get_device_name(device);
    errno = 0;
    core.context = ibv_open_device(device);
    if (core.context == nullptr)
        throw opening_failed(name, device->dev_name, reason());
    errno = 0;
    core.pd = ibv_alloc_pd(core.context);
    if (core.pd == nullptr) {
        const int status = reason();
        throw error(status, "the RDMA device " + name +
                                " gave no protection domain: " + amr_status_str(status));
    }
}

} // namespace detail

// An open device and a protection domain (PD) on it. Can be moved, not copied.
//
// Whatever is made on it shares the ownership: the PD and the device are closed once it and all
// that stands on it are gone, in whatever order that happens.
class RDMAContext {
  public:
    // Opens the first device. Throws amr::error: no_such_device; what the device says
    // (permission_denied, not_enough_memory, ...).
    RDMAContext() : core_(std::make_shared<detail::context_core>()) {
        detail::open(*core_, detail::device_list().first());
    }

    // Opens a device by its name. The error of an unknown name lists those that exist.
    explicit RDMAContext(detail::string_argument device)
        : core_(std::make_shared<detail::context_core>()) {
        const detail::device_list list;
        detail::open(*core_, list.find(std::string(device)));
    }

    // Uses a PD of the application's, which stays its own: it must stay open as long as anything
    // stands on it. Throws EINVAL if it is null.
    static RDMAContext borrow(ibv_pd *pd) {
        if (pd == nullptr)
            throw error(EINVAL, "there is no protection domain to borrow");
        RDMAContext context((std::make_shared<detail::context_core>()));
        context.core_->is_owned = false;
        context.core_->pd = pd;
        context.core_->context = pd->context;
        return context;
    }

    // The names of all devices.
    static std::vector<std::string> devices() {
        return detail::device_list().names();
    }

    RDMAContext(RDMAContext &&) noexcept = default;
    RDMAContext &operator=(RDMAContext &&) noexcept = default;
    RDMAContext(const RDMAContext &) = delete;
    RDMAContext &operator=(const RDMAContext &) = delete;
    ~RDMAContext() = default;

    // For verbs calls of one's own; nullptr once it was moved from.
    ibv_context *context() const noexcept {
        return core_ ? core_->context : nullptr;
    }

    ibv_pd *pd() const noexcept {
        return core_ ? core_->pd : nullptr;
    }

    // For the other classes: what they share. Throws EINVAL once it was moved from.
    const std::shared_ptr<detail::context_core> &core() const {
        if (!core_)
            throw error(EINVAL, "this RDMAContext was moved from");
        return core_;
    }

  private:
    explicit RDMAContext(std::shared_ptr<detail::context_core> core) : core_(std::move(core)) {}

    std::shared_ptr<detail::context_core> core_;
};

} // namespace amr

#endif // AMR_DETAIL_CONTEXT_HPP
