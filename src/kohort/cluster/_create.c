/* An object of a directory, created whole and durable in one call: written aside, brought to the disk, linked to its
 * name, the directory synced. One call, because a thread of Python that asks for each step by itself has to wait for
 * the interpreter after every one of them. kohort_begin does it on threads of this library, which never wait for the
 * interpreter at all: how it ended is written to a pipe.
 *
 * A plain shared library: no Python in here. create_library.py knows how to call it, and does without it. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define ABI_VERSION 2

enum { TAKEN = -1, THREADS = 3 };

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

/* Every name goes, of so many that follow each other, each with its zero; one that is gone already is no error. The
 * first error otherwise; the rest is tried all the same. */
EXPORT int64_t kohort_delete(const char *names, int64_t count) {
    int64_t first = 0;
    for (; count > 0; count--, names += strlen(names) + 1)
        if (unlink(names) && errno != ENOENT && !first) first = errno;
    return first;
}

/* ---- without waiting. What was asked is copied, so the asker may forget it; a few threads serve the process. */
struct ask {
    struct ask *next;
    int64_t id, size;
    int out;
    const char *aside, *path, *folder, *data;
    char bytes[];
};

struct answer {
    int64_t id, result;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static struct ask *first, **last = &first;
static int threads, is_known_to_fork;

static void tell(int fd, struct answer answer) {
    ssize_t written; /* whole or not at all: it is smaller than PIPE_BUF */
    do written = write(fd, &answer, sizeof answer);
    while (written < 0 && errno == EINTR);
}

static void *serve(void *unused) {
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!first) pthread_cond_wait(&more, &lock);
        struct ask *ask = first;
        first = ask->next;
        if (!first) last = &first;
        pthread_mutex_unlock(&lock);
        tell(ask->out, (struct answer){ask->id, kohort_create(ask->aside, ask->path, ask->folder, ask->data, ask->size)});
        free(ask);
    }
    return NULL;
}

/* Threads do not come along when a process forks: the child begins anew. */
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
static void as_child(void) {
    threads = 0;
    first = NULL;
    last = &first;
    pthread_cond_init(&more, NULL);
    pthread_mutex_init(&lock, NULL);
}

/* With the lock. Signals are not for these threads. */
static int have_threads(void) {
    if (!is_known_to_fork) is_known_to_fork = !pthread_atfork(before_fork, after_fork, as_child);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (threads < THREADS) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, NULL)) break;
        pthread_detach(thread);
        threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return threads;
}

static const char *copy(char **to, const char *from, size_t size) {
    char *made = memcpy(*to, from, size);
    *to += size;
    return made;
}

/* 0: what kohort_create gives follows on the file `out`, as two numbers of 64 bits, the id and the result. Else the
 * number of an error, and nothing was done. */
EXPORT int64_t kohort_begin(int64_t id, int64_t out, const char *aside, const char *path, const char *folder,
                            const char *data, int64_t size) {
    size_t sizes[] = {strlen(aside) + 1, strlen(path) + 1, strlen(folder) + 1};
    struct ask *ask = malloc(sizeof *ask + sizes[0] + sizes[1] + sizes[2] + (size_t)size);
    if (!ask) return ENOMEM;
    char *to = ask->bytes;
    *ask = (struct ask){.id = id, .size = size, .out = (int)out};
    ask->aside = copy(&to, aside, sizes[0]);
    ask->path = copy(&to, path, sizes[1]);
    ask->folder = copy(&to, folder, sizes[2]);
    ask->data = copy(&to, data, (size_t)size);
    pthread_mutex_lock(&lock);
    int ready = have_threads();
    if (ready) {
        *last = ask;
        last = &ask->next;
        pthread_cond_signal(&more);
    }
    pthread_mutex_unlock(&lock);
    if (ready) return 0;
    free(ask);
    return EAGAIN;
}
