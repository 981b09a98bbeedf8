/*
 * For LD_PRELOAD: lets a program and its children see another machine than this one. The environment
 * variable PRETEND names a folder, looked at on every call, so that a test changes it at any time:
 *
 *   clock                seconds by which the time of day, and that of the boot, is ahead of this
 *                        machine's
 *   hostname             what this machine is called
 *   user.1000            the name of the user of that number
 *   proc/4242/...        where there is such a folder, it is all that there is of /proc/4242
 *
 * What is missing is as it really is. Texts may be any bytes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PATH_SIZE = 4096 };

/* By the system call: open() is one of those that are replaced here. */
static long content(const char *name, char *out, size_t size)
{
    char path[PATH_SIZE];
    const char *folder = getenv("PRETEND");
    if (!folder)
        return -1;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    long length = read(file, out, size - 1);
    close(file);
    out[length < 0 ? 0 : length] = '\0';
    return length;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    char text[32];
    int failed = (int)syscall(SYS_clock_gettime, clock, out);
    if (!failed && clock == CLOCK_REALTIME && content("clock", text, sizeof text) > 0)
        out->tv_sec += atol(text);
    return failed;
}

int gethostname(char *out, size_t size)
{
    static int (*really)(char *, size_t);
    if (content("hostname", out, size) > 0)
        return 0;
    if (!really)
        *(void **)&really = dlsym(RTLD_NEXT, "gethostname");
    return really(out, size);
}

int getpwuid_r(uid_t uid, struct passwd *out, char *room, size_t size, struct passwd **found)
{
    static int (*really)(uid_t, struct passwd *, char *, size_t, struct passwd **);
    char name[32];
    snprintf(name, sizeof name, "user.%u", uid);
    if (content(name, room, size) > 0) {
        *out = (struct passwd){.pw_name = room, .pw_uid = uid, .pw_passwd = "", .pw_gecos = "",
            .pw_dir = getenv("PRETEND"), .pw_shell = "/bin/sh"};
        *found = out;
        return 0;
    }
    if (!really)
        *(void **)&really = dlsym(RTLD_NEXT, "getpwuid_r");
    return really(uid, out, room, size, found);
}

/* As the kernel has it after the clock was set: it was started so much later. */
static int stat_with_clock(long seconds)
{
    static char before[1 << 20], after[sizeof before + 32];
    int real = (int)syscall(SYS_openat, AT_FDCWD, "/proc/stat", O_RDONLY | O_CLOEXEC);
    long length = 0, got;
    while ((got = read(real, before + length, sizeof before - 1 - (size_t)length)) > 0)
        length += got;
    close(real);
    before[length] = '\0';
    char *line = strstr(before, "\nbtime "), *rest = line ? strchr(line + 1, '\n') : NULL;
    if (!rest)
        return -1;
    long boot = atol(line + 7) + seconds;
    *line = '\0';
    snprintf(after, sizeof after, "%s\nbtime %ld%s", before, boot, rest);
    int file = memfd_create("stat", MFD_CLOEXEC);
    if (write(file, after, strlen(after)) < 0 || lseek(file, 0, SEEK_SET) < 0)
        return -1;
    return file;
}

/* Where a file is really; `room` has its path then. */
static const char *place(const char *path, char *room)
{
    struct stat status;
    const char *folder = getenv("PRETEND");
    unsigned pid;
    if (!folder || sscanf(path, "/proc/%u", &pid) != 1)
        return path;
    snprintf(room, PATH_SIZE, "%s/proc/%u", folder, pid);
    if (stat(room, &status))
        return path;
    snprintf(room, PATH_SIZE, "%s%s", folder, path);
    return room;
}

#define OPEN(function)                                                                             \
    int function(const char *path, int flags, ...)                                                 \
    {                                                                                              \
        char room[PATH_SIZE];                                                                      \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, int) : 0;                     \
        va_end(arguments);                                                                         \
        if (!strcmp(path, "/proc/stat") && content("clock", room, sizeof room) > 0)                \
            return stat_with_clock(atol(room));                                                    \
        return (int)syscall(SYS_openat, AT_FDCWD, place(path, room), flags, mode);                 \
    }

OPEN(open)
OPEN(open64)
