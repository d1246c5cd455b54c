#define _POSIX_C_SOURCE 200809L
#include "base/secret.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"

/* Not 0. Where the system gives none, what differs between two processes: the time, and where they lie in memory. */
static uint64_t draw_seed(void)
{
    struct timespec t;
    uint64_t seed = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, &seed, sizeof seed) != (ssize_t)sizeof seed)
        seed = 0;
    if (fd >= 0)
        close(fd);
    clock_gettime(CLOCK_REALTIME, &t);
    seed ^= (uint64_t)t.tv_nsec << 32 ^ (uint64_t)t.tv_sec ^ (uint64_t)getpid() << 16 ^ (uint64_t)(uintptr_t)&t;
    return seed != 0 ? seed : 1;
}

uint64_t mmi_secret(uint64_t index)
{
    static _Atomic uint64_t kept;
    uint32_t block[4];
    uint64_t seed = atomic_load(&kept);
    if (seed == 0) {
        uint64_t fresh = draw_seed();
        if (atomic_compare_exchange_strong(&kept, &seed, fresh)) /* else `seed` is that of a thread that was first */
            seed = fresh;
    }
    mmi_random_block(block, seed, MMI_STREAM(MMI_STREAM_SECRET, 0), index);
    return (uint64_t)block[0] << 32 | block[1];
}
