/* Preloaded into a rank: a wait of SLOW_ALLOCATOR_US microseconds for each block as large as the simulated weights. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#define WEIGHTS 4096 /* bytes: training.simulated.WEIGHTS numbers of four bytes */

int posix_memalign(void **where, size_t alignment, size_t size) {
    static int (*next)(void **, size_t, size_t);
    static long wait_us = -1;
    if (!next) {
        next = dlsym(RTLD_NEXT, "posix_memalign");
        const char *given = getenv("SLOW_ALLOCATOR_US");
        wait_us = given ? atol(given) : 0;
    }
    if (size == WEIGHTS && wait_us > 0)
        usleep(wait_us);
    return next(where, alignment, size);
}
