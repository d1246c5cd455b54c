#include <string.h>

#include "backend/strips.h"
#include "nn/arrays.h"
#include "nn/embedding.h"
#include "nn/exec.h"
#include "nn/gradient.h"
#include "nn/reference64.h"

typedef struct embedding {
    int64_t N, V, C;
    int32_t *ids;
    float *table, *weights;      /* loss = Σ weights · y */
    double *table64, *y64;
    probes by_table;
    float *y, *grad, *start, *y1, *grad1; /* …1: the run with one thread */
} embedding;

static double loss(void *arg)
{
    embedding *e = arg;
    double sum = 0;
    ref_embedding(e->y64, e->table64, e->ids, e->N, e->C);
    for (int64_t i = 0; i < e->N * e->C; i++)
        sum += e->weights[i] * e->y64[i];
    return sum;
}

static embedding prepare(int64_t N, int64_t V, int64_t C, test_rng *rng)
{
    embedding e = { .N = N, .V = V, .C = C };
    e.ids = take_ints(rng, N, 0, (int)V - 1);
    e.table = take_random(rng, V * C, 1);
    e.weights = take_random(rng, N * C, 1);
    e.start = take_random(rng, V * C, 1);
    e.table64 = take_doubles(e.table, V * C);
    e.y64 = take(N * C, sizeof(double));
    e.y = take_floats(N * C, NAN);
    e.grad = take_floats(V * C, 0);
    e.by_table = probes_take(e.table64, V * C, loss, &e, rng);
    return e;
}

static void work(void *arg, const mmi_exec *x)
{
    embedding *e = arg;
    mmi_weight table = { e->table, MM_F32, e->V, e->C };
    memcpy(e->grad, e->start, (size_t)(e->V * e->C) * sizeof(float));
    mmi_embedding_forward(x, e->y, table, e->ids, e->N);
    mmi_embedding_backward(x, e->grad, e->weights, e->ids, e->N, e->C);
}

static void check(void *arg, const char *label)
{
    embedding *e = arg;
    for (int64_t i = 0; i < e->N * e->C; i++)
        ck_each(e->y[i] == e->table[e->ids[i / e->C] * e->C + i % e->C], "%s: element %lld", label, (long long)i);
    probes_check(&e->by_table, e->grad, e->start, 0, label);
    e->y1 = take_copy(e->y, e->N * e->C);
    e->grad1 = take_copy(e->grad, e->V * e->C);
}

static void same(void *arg, const char *label)
{
    embedding *e = arg;
    ck_assert_msg(same_bits(e->y, e->y1, e->N * e->C) && same_bits(e->grad, e->grad1, e->V * e->C), "%s", label);
}

START_TEST(rows_of_the_table_are_gathered_and_their_gradients_added_up)
{
    static const int64_t shapes[][3] = { { 1, 1, 1 }, { 1, 7, 10 }, { 67, 5, 6 }, { 300, 113, 130 }, { 129, 3, 65 } };
    test_rng rng = { 1 };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        embedding e = prepare(shapes[i][0], shapes[i][1], shapes[i][2], &rng);
        exec_on_all(&(exec_plan){ &e, 1, work, check, same });
    }
}
END_TEST

START_TEST(narrow_tables_are_read_as_what_they_hold)
{
    enum { V = 11, C = 13, N = 9 };
    test_rng rng = { 2 };
    int32_t *ids = take_ints(&rng, N, 0, V - 1);
    float *table = take_random(&rng, V * C, 1), *held = take_floats(V * C, 0), *y = take_floats(N * C, NAN);
    uint16_t *narrow = take(V * C, sizeof *narrow);
    for (int32_t dtype = MM_BF16; dtype <= MM_F16; dtype++)
        EACH_PATH_OF_FLOATS (path) {
            mmi_exec x = exec_create(path, 2, 1);
            x.k.narrow(narrow, table, dtype, V * C);
            x.k.widen(held, narrow, dtype, V * C);
            mmi_embedding_forward(&x, y, (mmi_weight){ narrow, dtype, V, C }, ids, N);
            for (int i = 0; i < N; i++)
                ck_assert(same_bits(y + i * C, held + ids[i] * C, C));
            exec_free(&x);
        }
}
END_TEST

/* Rows of up to several times what is widened at once, 32 blocks. */
START_TEST(tables_in_blocks_are_read_as_what_they_hold)
{
    static const int32_t dtypes[] = { MM_Q8_0, MM_Q4_0 };
    static const int64_t widths[] = { 32, 1024, 1056, 2080 };
    enum { V = 19, N = 9 };
    test_rng rng = { 4 };
    int32_t *ids = take_ints(&rng, N, 0, V - 1);
    ids[0] = 0;
    ids[N - 1] = V - 1;
    for (size_t d = 0; d < 2; d++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
            const int64_t C = widths[w];
            float *table = take_random(&rng, V * C, 1), *held = take_floats(V * C, 0), *y = take_floats(N * C, NAN);
            void *blocks = take((int64_t)mmi_dtype_bytes(dtypes[d], V * C), 1);
            void *strips = take((int64_t)mmi_strips_bytes(dtypes[d], V, C), 1);
            EACH_PATH_OF_FLOATS (path) {
                mmi_exec x = exec_create(path, 2, 1);
                x.k.narrow(blocks, table, dtypes[d], V * C);
                x.k.widen(held, blocks, dtypes[d], V * C);
                mmi_strips_pack(strips, blocks, dtypes[d], V, C);
                mmi_embedding_forward(&x, y, (mmi_weight){ strips, dtypes[d], V, C }, ids, N);
                for (int i = 0; i < N; i++)
                    ck_assert_msg(same_bits(y + i * C, held + ids[i] * C, C), "%s, %s, %d columns: row %d", x.k.name,
                                  mm_dtype_name(dtypes[d]), (int)C, i);
                exec_free(&x);
            }
            release_from(table);
        }
}
END_TEST

START_TEST(sinusoidal_positions_are_added_row_by_row)
{
    static const int64_t widths[] = { 1, 2, 7, 24, 130 };
    enum { P = 97, N = 143 };
    test_rng rng = { 3 };
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        int64_t C = widths[w];
        float *table = take_floats(P * C, NAN), *in = take_random(&rng, N * C, 1);
        double *expected = take_doubles(in, N * C);
        int32_t *positions = take_ints(&rng, N, 0, P - 1);
        mmi_sinusoid_table(table, P, C);
        for (int64_t i = 0; i < N * C; i++)
            expected[i] += ref_sinusoid(positions[i / C], i % C, C);
        EACH_PATH_OF_FLOATS (path)
            for (int threads = 1; threads <= 3; threads++) {
                mmi_exec x = exec_create(path, threads, 1);
                float *y = take_copy(in, N * C);
                mmi_sinusoid_add(&x, y, table, positions, N, C);
                ck_close(y, expected, N * C, 2e-7, "sinusoid");
                exec_free(&x);
            }
    }
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("nn/embedding", &tests);
    tcase_add_test(tests, rows_of_the_table_are_gathered_and_their_gradients_added_up);
    tcase_add_test(tests, narrow_tables_are_read_as_what_they_hold);
    tcase_add_test(tests, tables_in_blocks_are_read_as_what_they_hold);
    tcase_add_test(tests, sinusoidal_positions_are_added_row_by_row);
    return run_suite(suite);
}
