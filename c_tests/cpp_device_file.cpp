// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::RDMAContext of an unprivileged user, under a real libibverbs: which file in /dev/infiniband
// cannot be opened, and why. The files are this process's own.
#include "cpp.hpp"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace {

const char *const folder = "/dev/infiniband";
const char *const file = "/dev/infiniband/uverbs0";

struct stat device;

void open_any() {
    amr::RDMAContext context;
}

void open_named() {
    amr::RDMAContext context("rxe0");
}

// In a child, which cannot come back from being nobody.
template <typename Call>
void expect(std::errc code, const std::string &sentence, Call call, bool as_nobody = true) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (as_nobody)
            become_nobody();
        const amr::error error = test::thrown(code, call);
        std::puts(error.what());
        if (std::strstr(error.what(), sentence.c_str()) == nullptr)
            FAIL("\"%s\" does not say \"%s\"", error.what(), sentence.c_str());
        exit_child(0);
    }
    check_child(child);
}

void make_own_files() {
    CHECK_EQ(stat(file, &device), 0);
    if (unshare(CLONE_NEWNS) != 0)
        skip("no right to mount");
    CHECK_EQ(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    CHECK_EQ(mount("tmpfs", folder, "tmpfs", 0, "mode=755"), 0);
    CHECK_EQ(mknod(file, S_IFCHR | 0600, device.st_rdev), 0);
}

} // namespace

int main() {
    make_own_files();
    open_any();
    expect(std::errc::permission_denied,
           std::string("may not read and write ") + file + " (mode 0600, owner 0:0)", open_any);
    expect(std::errc::permission_denied, "the RDMA device rxe0 cannot be opened: user ",
           open_named);
    CHECK_EQ(chmod(file, 0444), 0);
    expect(std::errc::permission_denied, "(mode 0444, owner 0:0)", open_any);
    CHECK_EQ(chmod(folder, 0700), 0);
    expect(std::errc::permission_denied, std::string("may not read and write ") + file, open_any);
    CHECK_EQ(chmod(folder, 0755), 0);
    CHECK_EQ(chmod(file, 0666), 0);
    CHECK_EQ(unlink(file), 0);
    expect(std::errc::no_such_device, std::string("there is no ") + file, open_any, false);

    // A file that is not the device's.
    CHECK_EQ(mknod(file, S_IFCHR | 0600, makedev(1, 3)), 0);
    expect(std::errc::no_such_device, "is another device's file", open_any, false);
    return 0;
}
