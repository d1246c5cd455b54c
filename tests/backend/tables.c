#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "tables.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const int64_t awkward[] = { 0,  1,  2,  3,  4,  5,  7,  8,  9,  11, 12, 13, 15, 16, 17, 19, 23, 24,  25,  31,  32,
                            33, 37, 47, 48, 49, 61, 63, 64, 65, 71, 79, 95, 96, 97, 113, 127, 128, 129, 257, 512 };
const int awkward_count = sizeof awkward / sizeof awkward[0];

int all_tables(mmi_kernels tables[MOST_TABLES])
{
    int count = 0;
    for (int32_t i = 0; i < mmi_path_count(); i++)
        if (!mmi_path_get(i)->blas)
            mmi_kernels_init(&tables[count++], mmi_path_get(i)->cpu);
    return count;
}

#define EDGE_BYTES ((size_t)4 << 20)
#define CANARY 0xA5
#define CANARY_BYTES 256

static unsigned char *maps[EDGE_SLOTS], *places[EDGE_SLOTS];

void *edge_place(int slot, int64_t bytes)
{
    if (!maps[slot]) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        maps[slot] = mmap(NULL, EDGE_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(maps[slot], MAP_FAILED);
        ck_assert_int_eq(mprotect(maps[slot] + EDGE_BYTES, page, PROT_NONE), 0);
    }
    expect(bytes + CANARY_BYTES <= (int64_t)EDGE_BYTES, "a test wants %lld bytes", (long long)bytes);
    places[slot] = maps[slot] + EDGE_BYTES - bytes;
    memset(places[slot] - CANARY_BYTES, CANARY, CANARY_BYTES);
    return places[slot];
}

void edge_check(void)
{
    for (int slot = 0; slot < EDGE_SLOTS; slot++)
        for (int i = 1; i <= CANARY_BYTES && places[slot]; i++)
            expect(places[slot][-i] == CANARY, "slot %d was written %d bytes before its beginning", slot, i);
}

float *edge_random(int slot, int64_t n, test_rng *rng, float scale)
{
    float *x = edge_floats(slot, n);
    rng_fill(rng, x, (size_t)n, scale);
    return x;
}

int is_near(double got, double want, double tolerance)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got))
        return got == want;
    return fabs(got - want) <= tolerance;
}
