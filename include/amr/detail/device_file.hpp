// SPDX-License-Identifier: MIT OR Apache-2.0
// Why a device cannot be opened: what its file in /dev/infiniband says. libibverbs looks for the
// file in another place as well, and its errno is that of the last one; a device whose file is
// missing it does not list at all.
#ifndef AMR_DETAIL_DEVICE_FILE_HPP
#define AMR_DETAIL_DEVICE_FILE_HPP

#include "error.hpp"
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace amr {

namespace detail {

// The file of uverbs0 and so on.
inline std::string device_file(const std::string &name) {
    return "/dev/infiniband/" + name;
}

// The errno value with which the file cannot be opened, or 0.
inline int file_status(const std::string &path) noexcept {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno;
    ::close(fd);
    return 0;
}

// What it takes, and what there is: " (mode 0600, owner 0:0)".
inline std::string permissions(const std::string &path) {
    struct stat file;
    if (::stat(path.c_str(), &file) != 0)
        return std::string();
    char text[80];
    std::snprintf(text, sizeof(text), " (mode %04o, owner %lu:%lu)",
                  static_cast<unsigned>(file.st_mode & 07777),
                  static_cast<unsigned long>(file.st_uid), static_cast<unsigned long>(file.st_gid));
    return text;
}

inline bool is_forbidden(int status) noexcept {
    return status == EACCES || status == EPERM;
}

inline std::string file_trouble(const std::string &path, int status) {
    switch (status) {
    case EACCES:
        return "user " + std::to_string(::geteuid()) + " may not read and write " + path +
               permissions(path);
    case EPERM:
        return "the kernel forbids this process to use " + path +
               "; a container has to be given the device (--device=" + path +
               ") and the network namespace that it is in";
    case ENOENT:
    case ENXIO:
        return "there is no " + path + "; a container has to be given it (--device=" + path + ")";
    default:
        return path + ": " + std::strerror(status);
    }
}

// As an error: a device without its file is no device.
inline int device_status(int status) noexcept {
    return status == ENOENT || status == ENXIO ? ENODEV : status;
}

// What opening the device of that name and file failed with.
inline error opening_failed(const std::string &name, const std::string &file, int status) {
    const std::string path = device_file(file);
    const std::string sentence = "the RDMA device " + name + " cannot be opened: ";
    const int found = file_status(path);
    if (status == ENOENT && found == 0)
        return error(ENODEV, sentence + path + " is another device's file");
    if (status == ENOENT || (is_forbidden(status) && is_forbidden(found)))
        status = found;
    else if (!is_forbidden(status))
        return error(status, sentence + amr_status_str(status));
    return error(device_status(status), sentence + file_trouble(path, status));
}

// The name of any device that the kernel has.
inline std::string any_device_file() {
    DIR *folder = ::opendir("/sys/class/infiniband_verbs");
    if (folder == nullptr)
        return std::string();
    char name[sizeof(dirent::d_name)] = "";
    while (const dirent *entry = ::readdir(folder)) {
        if (std::strncmp(entry->d_name, "uverbs", 6) == 0)
            std::memcpy(name, entry->d_name, sizeof(name));
    }
    ::closedir(folder);
    return name;
}

// That there is no device, or none to be seen.
inline error no_device() {
    const std::string sentence = "there is no RDMA device";
    const std::string file = any_device_file();
    const int status = file.empty() ? 0 : file_status(device_file(file));
    if (status == 0)
        return error(ENODEV, sentence);
    return error(device_status(status), sentence + " to be seen, though the kernel has one: " +
                                            file_trouble(device_file(file), status));
}

} // namespace detail

} // namespace amr

#endif // AMR_DETAIL_DEVICE_FILE_HPP
