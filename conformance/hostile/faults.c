/* Makes one call of a program that opens something fail, as on a machine that has run out.
 *
 * Loaded before the C library. The file that FAULTS names has four numbers: after how many more
 * calls one fails (0 for never), with which error, how often one has, and how many calls there were.
 * Programs that are started by this one are left alone.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

struct faults {
    int left, error, failed, calls;
};

static struct faults *faults;
static pid_t own;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTS");
    unsetenv("LD_PRELOAD");
    if (!path)
        return;
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    void *map = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED)
        faults = map;
    own = getpid();
}

static int fails(void) {
    if (!faults || getpid() != own)
        return 0;
    __atomic_add_fetch(&faults->calls, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&faults->left, __ATOMIC_SEQ_CST) <= 0)
        return 0;
    if (__atomic_sub_fetch(&faults->left, 1, __ATOMIC_SEQ_CST) != 0)
        return 0;
    __atomic_add_fetch(&faults->failed, 1, __ATOMIC_SEQ_CST);
    errno = faults->error;
    return 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPENS(name, head, names)                                      \
    int name head {                                                   \
        mode_t mode = 0;                                              \
        if (flags & (O_CREAT | O_TMPFILE)) {                          \
            va_list rest;                                             \
            va_start(rest, flags);                                    \
            mode = va_arg(rest, int);                                 \
            va_end(rest);                                             \
        }                                                             \
        return fails() ? -1 : NEXT(name) names;                       \
    }

OPENS(open, (const char *path, int flags, ...), (path, flags, mode))
OPENS(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENS(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPENS(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))

DIR *opendir(const char *path) { return fails() ? NULL : NEXT(opendir)(path); }
int pipe2(int ends[2], int flags) { return fails() ? -1 : NEXT(pipe2)(ends, flags); }
int socket(int domain, int type, int protocol) {
    return fails() ? -1 : NEXT(socket)(domain, type, protocol);
}
int socketpair(int domain, int type, int protocol, int ends[2]) {
    return fails() ? -1 : NEXT(socketpair)(domain, type, protocol, ends);
}
int epoll_create1(int flags);
int epoll_create1(int flags) { return fails() ? -1 : NEXT(epoll_create1)(flags); }
int eventfd(unsigned int value, int flags);
int eventfd(unsigned int value, int flags) { return fails() ? -1 : NEXT(eventfd)(value, flags); }

long syscall(long number, ...) {
    va_list rest;
    va_start(rest, number);
    long a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long);
    long d = va_arg(rest, long), e = va_arg(rest, long), f = va_arg(rest, long);
    va_end(rest);
    if ((number == SYS_pidfd_open || number == SYS_openat2) && fails())
        return -1;
    return NEXT(syscall)(number, a, b, c, d, e, f);
}
