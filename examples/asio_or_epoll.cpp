// SPDX-License-Identifier: MIT OR Apache-2.0
//
// asio_or_epoll [DEVICE]: completions in an event loop, between the ticks of a timer: Asio's loop
// if it was there when this was built (USE_ASIO), or plain epoll.
#include <amr/amr.hpp>
#include <cstdint>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <system_error>
#include <vector>
#if USE_ASIO
#include <asio.hpp>
#else
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#endif

namespace {

#if USE_ASIO

class Loop {
  public:
    static constexpr const char *name = "Asio";

    // Calls on_ready whenever there is something to poll for, until stop().
    Loop(int fd, std::function<void()> on_ready)
        : descriptor_(context_, fd), timer_(context_), on_ready_(std::move(on_ready)) {}

    ~Loop() {
        descriptor_.release(); // it is the queue's to close
    }

    void run() {
        wait();
        tick();
        context_.run();
    }

    void stop() {
        context_.stop();
    }

    int ticks = 0;

  private:
    void wait() {
        descriptor_.async_wait(asio::posix::stream_descriptor::wait_read,
                               [this](const asio::error_code &error) {
                                   if (error)
                                       throw std::system_error(error);
                                   on_ready_();
                                   wait();
                               });
    }

    void tick() {
        timer_.expires_after(std::chrono::milliseconds(1));
        timer_.async_wait([this](const asio::error_code &) {
            ticks++;
            tick();
        });
    }

    asio::io_context context_;
    asio::posix::stream_descriptor descriptor_;
    asio::steady_timer timer_;
    std::function<void()> on_ready_;
};

#else

class Loop {
  public:
    static constexpr const char *name = "epoll";

    // Calls on_ready whenever there is something to poll for, until stop().
    Loop(int fd, std::function<void()> on_ready) : on_ready_(std::move(on_ready)) {
        const itimerspec each = {{0, 1000000}, {0, 1000000}};
        if (epoll_ < 0 || timer_ < 0 || timerfd_settime(timer_, 0, &each, nullptr) != 0)
            throw std::system_error(errno, std::generic_category(), "event loop");
        add(fd);
        add(timer_);
    }

    ~Loop() {
        close(timer_);
        close(epoll_);
    }

    void run() {
        while (!stopped_) {
            epoll_event event;
            if (epoll_wait(epoll_, &event, 1, -1) != 1)
                continue; // a signal
            std::uint64_t expired;
            if (event.data.fd != timer_)
                on_ready_();
            else if (read(timer_, &expired, sizeof(expired)) == sizeof(expired))
                ticks++;
        }
    }

    void stop() {
        stopped_ = true;
    }

    int ticks = 0;

  private:
    void add(int fd) {
        epoll_event event = {};
        event.events = EPOLLIN;
        event.data.fd = fd;
        if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0)
            throw std::system_error(errno, std::generic_category(), "epoll_ctl");
    }

    int epoll_ = epoll_create1(EPOLL_CLOEXEC);
    int timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    bool stopped_ = false;
    std::function<void()> on_ready_;
};

#endif

const std::size_t buffer_size = 4 << 20;
const std::uint32_t buffer_count = 16;

void run(const amr::RDMAContext &context) {
    std::vector<std::vector<char>> buffers(buffer_count, std::vector<char>(buffer_size));
    amr::CompletionQueue queue(context, buffer_count);
    unsigned done = 0;
    Loop loop(queue.fd(), [&] {
        amr::Completion completion;
        while (queue.poll(completion)) {
            completion.check();
            if (completion.region()) // registered: from here on it could be used
                queue.deregister(std::move(completion.region()), completion.id());
            else if (++done == buffer_count)
                loop.stop();
        }
    });

    for (std::uint32_t i = 0; i < buffer_count; i++)
        queue.register_memory(buffers[i], amr::access::local_write, i);
    loop.run();
    std::cout << buffer_count << " buffers registered and deregistered, while " << Loop::name
              << "'s loop took " << loop.ticks << " ticks of a timer\n";
}

} // namespace

int main(int argc, char **argv) {
    try {
        run(argc > 1 ? amr::RDMAContext(argv[1]) : amr::RDMAContext());
        return 0;
    } catch (const std::exception &error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
