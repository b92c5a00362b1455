// SPDX-License-Identifier: MIT OR Apache-2.0
// Hints: combined with rights, they reach the library in each way to register.
#include "cpp.hpp"

#include <type_traits>

namespace {

const std::size_t length = 8 << 20;

static_assert((amr::access::local_write | amr::hint::urgent | amr::hint::huge_pages).flags ==
                  (AMR_WR_URGENT | AMR_WR_HUGEPAGE),
              "hints add up");
static_assert((amr::access::local_write | amr::hint::urgent).rights == amr::access::local_write,
              "hints leave the rights alone");
static_assert(amr::options(amr::access::local_read).flags == 0, "rights alone have no hints");
static_assert((amr::access::local_write | amr::hint::urgent | amr::access::remote_read).rights ==
                  (amr::access::local_write | amr::access::remote_read),
              "rights may come last");
static_assert(((amr::hint::urgent | amr::hint::no_prefault) | amr::access::local_write).flags ==
                  (AMR_WR_URGENT | AMR_WR_NO_PREFAULT),
              "hints may come first");
static_assert(!std::is_convertible<amr::hint, amr::options>::value,
              "hints alone do not say what the region is for");

// Memory that nobody has touched: unless told otherwise, the library faults it in.
class Fresh {
  public:
    Fresh() : addr_(map_pages(length)) {}
    Fresh(const Fresh &) = delete;
    Fresh &operator=(const Fresh &) = delete;
    ~Fresh() {
        munmap(addr_, length);
    }

    amr::buffer buffer() const {
        return amr::buffer(addr_, length);
    }

  private:
    void *addr_;
};

// The times of a request are added up once its future is told.
uint64_t populating(const amr::Engine &engine) {
    engine.drain();
    return engine.stats().populate_ns_total;
}

// `call` is told how, and returns when it has registered fresh memory.
template <typename Call> void check_hint(const amr::Engine &engine, Call call) {
    const uint64_t before = populating(engine);
    call(test::rights | amr::hint::no_prefault);
    CHECK_EQ(populating(engine), before);
    call(test::rights);
    CHECK(populating(engine) > before);
    test::thrown(std::errc::invalid_argument, [&] { call(amr::options(test::rights, 1U << 31)); });
}

void check_manager(const amr::RDMAContext &context) {
    amr::AsyncMRManager manager(context, 2);
    check_hint(manager.engine(), [&](const amr::options &how) {
        const Fresh memory;
        manager.register_memory(memory.buffer(), how).get();
    });
    check_hint(manager.engine(), [&](const amr::options &how) {
        const Fresh memory;
        const auto call = [](const amr::shared_region &region) { return region->length(); };
        CHECK_EQ(manager.register_memory(memory.buffer(), how, call).get(), length);
    });
    check_hint(manager.engine(), [&](const amr::options &how) {
        const Fresh memory, other;
        for (auto &future : manager.register_batch({memory.buffer(), other.buffer()}, how))
            future.get();
    });
}

void check_queue(const amr::RDMAContext &context) {
    const amr::Engine engine(2);
    amr::CompletionQueue queue(context, engine, 1);
    check_hint(engine, [&](const amr::options &how) {
        const Fresh memory;
        amr::Completion completion;
        queue.register_memory(memory.buffer(), how, 1);
        CHECK(queue.wait(completion));
        completion.check();
    });
}

} // namespace

int main() {
    test::Sim sim;
    const amr::RDMAContext context;
    check_manager(context);
    check_queue(context);
    return 0;
}
