/* An object of a directory, created whole and durable in one call: written aside, brought to the disk, linked to its
 * name, the directory synced. One call, because a thread of Python that asks for each step by itself has to wait for
 * the interpreter after every one of them.
 *
 * A plain shared library: no Python in here, nothing is allocated. directory_engine.py does the same without it. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define ABI_VERSION 1

enum { TAKEN = -1 };

EXPORT int64_t kohort_create_version(void) { return ABI_VERSION; }

/* All give 0, or the number of an error. */
static int write_all(int fd, const char *data, int64_t left) {
    while (left > 0) {
        ssize_t written = write(fd, data, (size_t)left);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return errno;
        data += written;
        left -= written;
    }
    return 0;
}

static int write_aside(const char *aside, const char *data, int64_t size) {
    int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return errno;
    int error = write_all(fd, data, size);
#if defined(__linux__)
    if (!error && fdatasync(fd)) error = errno;
#else
    if (!error && fsync(fd)) error = errno;
#endif
    if (close(fd) && !error) error = errno;
    return error;
}

static int sync_folder(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int error = fsync(fd) ? errno : 0;
    close(fd);
    return error;
}

/* 0, TAKEN where the name is, or the number of an error. Whoever finds a name taken may rest on the object from then
 * on: so that is brought to the disk as well, should whoever has linked it not have come that far. */
EXPORT int64_t kohort_create(const char *aside, const char *path, const char *folder, const char *data, int64_t size) {
    int error = write_aside(aside, data, size);
    if (error) {
        if (error != EEXIST) unlink(aside);
        return error;
    }
    int taken = 0;
    if (link(aside, path)) {
        error = errno;
        taken = error == EEXIST;
    }
    unlink(aside);
    if (error && !taken) return error;
    error = sync_folder(folder);
    return error ? error : taken ? TAKEN : 0;
}
