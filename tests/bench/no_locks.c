/* For LD_PRELOAD: a file system without locks. LOCK_ERROR is the number of the error that they give. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>

static int refused(int command)
{
    if (command != F_SETLK && command != F_SETLKW && command != F_GETLK)
        return 0;
    errno = atoi(getenv("LOCK_ERROR"));
    return 1;
}

#define REPLACE(function)                                                                          \
    int function(int file, int command, ...)                                                       \
    {                                                                                              \
        static int (*really)(int, int, ...);                                                       \
        va_list arguments;                                                                         \
        va_start(arguments, command);                                                              \
        void *argument = va_arg(arguments, void *);                                                \
        va_end(arguments);                                                                         \
        if (refused(command))                                                                      \
            return -1;                                                                             \
        if (!really)                                                                               \
            *(void **)&really = dlsym(RTLD_NEXT, #function);                                       \
        return really(file, command, argument);                                                    \
    }

REPLACE(fcntl)
REPLACE(fcntl64)
