#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "tables.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const int64_t awkward[] = { 0,  1,  2,  3,  4,  5,  7,  8,  9,  11, 12, 13, 15, 16, 17,  19,  23,  24,  25,  31, 32,
                            33, 37, 47, 48, 49, 61, 63, 64, 65, 71, 79, 95, 96, 97, 113, 127, 128, 129, 257, 512 };
const int awkward_count = sizeof awkward / sizeof awkward[0];

int all_tables(mmi_kernels tables[MOST_TABLES])
{
    int count = 0;
    for (int32_t i = 0; i < mmi_path_count(); i++) {
        const unsigned cpu = mmi_path_get(i)->cpu;
        if (mmi_path_get(i)->blas)
            continue;
        expect(count + 2 <= MOST_TABLES, "%d tables", count);
        mmi_kernels_init(&tables[count++], cpu);
        if (cpu & MMI_CPU_AVX512 && !(cpu & MMI_CPU_AMX))
            mmi_kernels_init(&tables[count++], cpu ^ MMI_CPU_INTEL);
    }
    return count;
}

#define EDGE_BYTES ((size_t)10 << 20)
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

float *panels_of(const mmi_kernels *k, int slot, int64_t count, int64_t width, int64_t K, int32_t round)
{
    int64_t floats = k->gemm_panel((count + width - 1) / width * width, K, round);
    return memset(edge_floats(slot, floats), 0xFF, (size_t)floats * sizeof(float));
}

void multiply_by_panels(const mmi_kernels *k, float *c, int64_t ldc, const float *a, int64_t ars, int64_t acs,
                        const float *b, int64_t brs, int64_t bcs, int64_t M, int64_t N, int64_t K, const float *from,
                        int32_t round, int in_place)
{
    in_place = in_place && k->gemm_in_place;
    for (int64_t p = 0; p < K; p += k->gemm_depth) {
        int64_t n = K - p < k->gemm_depth ? K - p : k->gemm_depth;
        float *packed_a = panels_of(k, 8, M, k->gemm_a_rows, n, round),
              *packed_b = panels_of(k, 9, N, k->gemm_b_cols, n, round);
        k->gemm_pack_b(packed_b, b + p * brs, bcs, brs, N, n, round);
        if (!in_place)
            k->gemm_pack_a(packed_a, a + p * acs, ars, acs, M, n, round);
        k->gemm_multiply(c, ldc, in_place ? a + p : packed_a, in_place ? ars : 0, packed_b, M, N, n, p > 0 ? c : from,
                         round);
    }
}

int is_near(double got, double want, double tolerance)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got))
        return got == want;
    return fabs(got - want) <= tolerance;
}

void multiply_rows(const mmi_kernels *k, float *y, int64_t ldy, const float *x, int64_t ldx, const void *w,
                   int32_t dtype, int64_t ldw, int64_t M, int64_t N, int64_t K, int32_t round)
{
    if (round != MM_F32) {
        float *rounded = edge_floats(7, M * K);
        k->round_rows(rounded, x, ldx, M, K, round);
        x = rounded;
        ldx = K;
    }
    k->gemm_rows(y, ldy, x, ldx, w, dtype, ldw, M, N, K, round);
}
