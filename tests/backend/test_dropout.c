/* Dropout, every table against the generator itself, bit for bit. */
#include <string.h>

#include "base/random.h"
#include "tables.h"

/* Numbers from `first` on, one by one. */
static void drop_slowly(float *y, int64_t n, float p, uint64_t seed, uint64_t stream, uint64_t first)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t index = first + (uint64_t)i;
        uint32_t block[4];
        mmi_random_block(block, seed, stream, index / 4);
        y[i] = (double)block[index % 4] < floor((double)p * 0x1p32) ? 0 : y[i] * (1 / (1 - p));
    }
}

START_TEST(every_table_draws_the_same_numbers)
{
    static const uint64_t starts[] = { 0, 1, 2, 3, 4, 4093, (1ull << 34) - 5, (1ull << 34) - 64, 7ull << 32 | 64,
                                       UINT64_MAX - 4093 };
    static const float rates[] = { 0.1f, 0.5f, 0.999f, 1e-9f };
    const uint64_t seed = 0xFEDCBA9876543210ull, stream = 0x123456789ABCDEFull;
    test_rng rng = { 700 };
    EACH_TABLE (k)
        for (int at = 0; at < awkward_count; at++)
            for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
                for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
                    const int64_t n = awkward[at];
                    float *y = edge_random(0, n, &rng, 3), *want = edge_floats(1, n);
                    memcpy(want, y, (size_t)n * sizeof *y);
                    k->dropout(y, n, rates[r], seed, stream, starts[s]);
                    drop_slowly(want, n, rates[r], seed, stream, starts[s]);
                    expect(memcmp(y, want, (size_t)n * sizeof *y) == 0, "%s: %lld from %llu at a rate of %g", k->name,
                           (long long)n, (unsigned long long)starts[s], (double)rates[r]);
                    edge_check();
                }
}
END_TEST

START_TEST(what_is_dropped_is_0_whatever_it_was)
{
    EACH_TABLE (k) {
        float y[200];
        int dropped = 0;
        for (int i = 0; i < 200; i++)
            y[i] = i % 2 ? NAN : INFINITY;
        k->dropout(y, 200, 0.5f, 1, 2, 3);
        for (int i = 0; i < 200; i++) {
            expect(y[i] == 0 || (i % 2 ? isnan(y[i]) : isinf(y[i])), "%s: %g", k->name, (double)y[i]);
            dropped += y[i] == 0;
        }
        expect(dropped > 50 && dropped < 150, "%s drops %d of 200", k->name, dropped);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend/dropout");
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, every_table_draws_the_same_numbers);
    tcase_add_test(tests, what_is_dropped_is_0_whatever_it_was);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
