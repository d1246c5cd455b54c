#include <string.h>

#include "nn/arrays.h"
#include "nn/exec.h"
#include "nn/gradient.h"
#include "nn/linear.h"
#include "nn/reference64.h"

#define GAP 3 /* floats between rows, which nobody may touch */
#define UNTOUCHED 12345.0f

typedef struct linear {
    int64_t N, in, out, ldx, ldy;
    bool biased, accumulate;
    float *x, *w, *b, *weights;  /* x [N, ldx]; loss = Σ weights · y, weights [N, ldy] */
    double *x64, *w64, *b64, *y64;
    probes by_x, by_w, by_b;
    float *y, *added, *dx, *dw, *db;              /* what the library gave */
    float *added0, *dx0, *dw0, *db0;              /* what they began with */
    float *all, *all1;                            /* everything, to compare bits */
    int64_t size;
} linear;

static double loss(void *arg)
{
    linear *l = arg;
    double sum = 0;
    ref_linear(l->y64, l->x64, l->w64, l->b64, l->N, l->out, l->in);
    for (int64_t i = 0; i < l->N * l->out; i++)
        sum += l->weights[i / l->out * l->ldy + i % l->out] * l->y64[i];
    return sum;
}

static double *packed(const float *x, int64_t N, int64_t ld, int64_t C)
{
    double *y = take(N * C, sizeof *y);
    for (int64_t i = 0; i < N * C; i++)
        y[i] = x[i / C * ld + i % C];
    return y;
}

/* One piece of l->all, which is everything a run writes. */
static float *part(linear *l, int64_t *at, int64_t n)
{
    float *p = l->all ? l->all + *at : NULL;
    *at += n;
    return p;
}

static void lay_out(linear *l)
{
    l->size = 0;
    l->y = part(l, &l->size, l->N * l->ldy);
    l->added = part(l, &l->size, l->N * l->out);
    l->dx = part(l, &l->size, l->N * l->ldx);
    l->dw = part(l, &l->size, l->out * l->in);
    l->db = part(l, &l->size, l->out);
}

static linear prepare(int64_t N, int64_t in, int64_t out, bool biased, bool accumulate, test_rng *rng)
{
    linear l = { .N = N, .in = in, .out = out, .ldx = in + GAP, .ldy = out + GAP, .biased = biased, .accumulate = accumulate };
    l.x = take_random(rng, N * l.ldx, 1);
    l.w = take_random(rng, out * in, 1);
    l.b = take_random(rng, out, 1);
    l.weights = take_random(rng, N * l.ldy, 1);
    l.added0 = take_random(rng, N * out, 1);
    l.dx0 = take_random(rng, N * l.ldx, 1);
    l.dw0 = take_random(rng, out * in, 1);
    l.db0 = take_random(rng, out, 1);
    l.x64 = packed(l.x, N, l.ldx, in);
    l.w64 = take_doubles(l.w, out * in);
    l.b64 = biased ? take_doubles(l.b, out) : NULL;
    l.y64 = take(N * out, sizeof(double));
    lay_out(&l);
    l.all = take_floats(l.size, 0);
    lay_out(&l);
    l.by_x = probes_take(l.x64, N * in, loss, &l, rng);
    l.by_w = probes_take(l.w64, out * in, loss, &l, rng);
    if (biased)
        l.by_b = probes_take(l.b64, out, loss, &l, rng);
    loss(&l);
    return l;
}

static void work(void *arg, const mmi_exec *x)
{
    linear *l = arg;
    mmi_param w = { { l->w, MM_F32, l->out, l->in }, l->dw, NULL }, b = { { 0 }, NULL, NULL };
    if (l->biased)
        b = (mmi_param){ { l->b, MM_F32, 1, l->out }, l->db, NULL };
    for (int64_t i = 0; i < l->N * l->out; i++)
        l->added[i] = NAN;
    memcpy(l->dw, l->dw0, (size_t)(l->out * l->in) * sizeof(float));
    memcpy(l->db, l->db0, (size_t)l->out * sizeof(float));
    for (int64_t i = 0; i < l->N * l->ldy; i++)
        l->y[i] = i % l->ldy < l->out ? NAN : UNTOUCHED;
    for (int64_t i = 0; i < l->N * l->ldx; i++)
        l->dx[i] = i % l->ldx >= l->in ? UNTOUCHED : l->accumulate ? l->dx0[i] : NAN;
    mmi_linear_forward(x, l->y, l->ldy, mmi_operand_of(l->x, l->ldx), w, b, l->N, NULL);
    float *delta = take_floats(l->N * l->out, NAN), *x_packed = take_floats(l->N * l->in, 0);
    for (int64_t i = 0; i < l->N * l->in; i++)
        x_packed[i] = (float)l->x64[i];
    mmi_linear_add(x, l->added, l->added0, mmi_operand_of(x_packed, w.w.cols), w, b, l->N, NULL, delta, false);
    mmi_linear_backward(x, l->dx, l->ldx, l->weights, l->ldy, l->x, l->ldx, w, b, l->N, l->accumulate);
}

/* Rows without their gaps, which must be as they were. */
static float *close_gaps(const float *x, int64_t N, int64_t ld, int64_t C, const char *label)
{
    float *y = take_floats(N * C, 0);
    for (int64_t i = 0; i < N; i++) {
        memcpy(y + i * C, x + i * ld, (size_t)C * sizeof *y);
        for (int64_t c = C; c < ld; c++)
            ck_each(x[i * ld + c] == UNTOUCHED, "%s: a gap between rows was written", label);
    }
    return y;
}

static void check(void *arg, const char *label)
{
    linear *l = arg;
    int64_t N = l->N, in = l->in, out = l->out;
    ck_close(close_gaps(l->y, N, l->ldy, out, label), l->y64, N * out, 1e-6, label);
    double *sums = take_doubles(l->added0, N * out);
    for (int64_t i = 0; i < N * out; i++)
        sums[i] += l->y64[i];
    ck_close(l->added, sums, N * out, 1e-6, label);
    float *dx0 = take_floats(N * in, 0);
    for (int64_t i = 0; i < N * in; i++)
        dx0[i] = l->dx0[i / in * l->ldx + i % in];
    probes_check(&l->by_x, close_gaps(l->dx, N, l->ldx, in, label), l->accumulate ? dx0 : NULL, 0, label);
    probes_check(&l->by_w, l->dw, l->dw0, 0, label);
    if (l->biased)
        probes_check(&l->by_b, l->db, l->db0, 0, label);
    else
        ck_assert_msg(same_bits(l->db, l->db0, out), "%s", label);
    l->all1 = take_copy(l->all, l->size);
}

static void same(void *arg, const char *label)
{
    linear *l = arg;
    ck_assert_msg(same_bits(l->all, l->all1, l->size), "%s: other bits than with one thread", label);
}

/* N, in, out: one row, few rows, one more than few, primes, more than one slice; few rows of more than one piece. */
static const int64_t shapes[][3] = { { 1, 1, 1 },    { 1, 37, 130 }, { 2, 700, 131 }, { 7, 10, 6 },    { 8, 64, 33 },
                                     { 9, 24, 36 },  { 13, 1, 5 },   { 31, 67, 1 },   { 65, 130, 131 }, { 270, 65, 140 },
                                     { 67, 37, 300 }, { 3, 200, 700 } };
enum { SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(products_and_their_gradients_agree_with_the_reference)
{
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        test_rng rng = { 10 + (unsigned)_i };
        linear l = prepare(shapes[_i][0], shapes[_i][1], shapes[_i][2], accumulate == 0, accumulate, &rng);
        exec_on_all(&(exec_plan){ &l, FOR_PRODUCTS, work, check, same });
    }
}
END_TEST

START_TEST(gradients_that_nobody_wants_are_left_out)
{
    test_rng rng = { 20 };
    linear l = prepare(11, 9, 10, true, false, &rng);
    mmi_exec x = exec_create(mmi_path_get(0), 2, FOR_PRODUCTS);
    mmi_param w = { { l.w, MM_F32, l.out, l.in }, NULL, NULL }, b = { { l.b, MM_F32, 1, l.out }, NULL, NULL };
    work(&l, &x);
    float *before = take_copy(l.all, l.size);
    mmi_linear_backward(&x, NULL, 0, l.weights, l.ldy, NULL, 0, w, b, l.N, false);
    mmi_linear_backward(&x, l.dx, l.ldx, l.weights, l.ldy, NULL, 0, w, b, l.N, false);
    ck_assert(same_bits(l.all, before, l.size));
    exec_free(&x);
}
END_TEST

START_TEST(narrow_weights_give_the_products_of_what_they_hold)
{
    test_rng rng = { 30 };
    for (int s = 0; s < SHAPES; s++) {
        int64_t N = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
        float *x = take_random(&rng, N * in, 1), *w = take_random(&rng, out * in, 1), *b = take_random(&rng, out, 1);
        float *held = take_floats(out * in, 0), *y = take_floats(N * out, NAN), *start = take_random(&rng, N * out, 1);
        uint16_t *narrow = take(out * in, sizeof *narrow);
        double *x64 = take_doubles(x, N * in), *y64 = take(N * out, sizeof *y64), *b64 = take_doubles(b, out);
        for (int32_t dtype = MM_BF16; dtype <= MM_F16; dtype++)
            EACH_PATH_OF_FLOATS (path)
                for (int threads = 1; threads <= 2; threads++) {
                    mmi_exec e = exec_create(path, threads, FOR_PRODUCTS);
                    e.k.narrow(narrow, w, dtype, out * in);
                    e.k.widen(held, narrow, dtype, out * in);
                    ref_linear(y64, x64, take_doubles(held, out * in), b64, N, out, in);
                    mmi_param pw = { { narrow, dtype, out, in }, NULL, NULL }, pb = { { b, MM_F32, 1, out }, NULL, NULL };
                    float *panel = take_floats(out * in, NAN), *delta = take_floats(N * out, NAN);
                    mmi_linear_forward(&e, y, out, mmi_operand_of(x, in), pw, pb, N, panel);
                    ck_close(y, y64, N * out, 1e-6, path->name);
                    memcpy(y, start, (size_t)(N * out) * sizeof *y);
                    mmi_linear_add(&e, y, y, mmi_operand_of(x, in), pw, pb, N, panel, delta, false);
                    for (int64_t i = 0; i < N * out; i++)
                        y64[i] += start[i];
                    ck_close(y, y64, N * out, 1e-6, path->name);
                    exec_free(&e);
                }
        release_all();
    }
}
END_TEST

/* y [N, out] += x · wᵀ (+ b), by whoever reads it next where that is left to them. */
static bool add_later(float *y, const mmi_exec *e, const float *x, mmi_param w, mmi_param b, int64_t N)
{
    const int64_t out = w.w.rows, in = w.w.cols;
    float *panel = take_floats(out * in, NAN), *delta = take_floats(N * out, NAN);
    bool left = mmi_linear_add(e, y, y, mmi_operand_of(x, in), w, b, N, panel, delta, true);
    if (left)
        e->k.add(y, delta, N * out);
    return left;
}

START_TEST(what_is_left_to_be_added_is_what_would_have_been_added)
{
    enum { MOST = MMI_MOST_ROWS, IN = 8 * MOST, OUT = 37 };
    test_rng rng = { 31 };
    float *x = take_random(&rng, MOST * IN, 1), *w = take_random(&rng, OUT * IN, 1), *b = take_random(&rng, OUT, 1);
    float *start = take_random(&rng, MOST * OUT, 1), *panel = take_floats(OUT * IN, NAN);
    float *delta = take_floats(MOST * OUT, NAN);
    const mmi_loras loras = { NULL, 0, NULL };
    EACH_PATH_OF_FLOATS (path)
        for (int i = 0; i < 6; i++) {
            const int kind = i % 3;
            mmi_exec e = exec_create(path, 2, FOR_PRODUCTS);
            const int64_t N = i < 3 ? 5 : mmi_few_rows(&e, IN); /* the most that leave it */
            ck_assert_int_le(N, MOST);
            mmi_param pw = { { w, MM_F32, OUT, IN }, NULL, kind == 2 ? &loras : NULL }, pb = { 0 };
            if (kind == 1)
                pb = (mmi_param){ { b, MM_F32, 1, OUT }, NULL, NULL };
            float *want = take_copy(start, N * OUT), *y = take_copy(start, N * OUT);
            ck_assert(!mmi_linear_add(&e, want, want, mmi_operand_of(x, IN), pw, pb, N, panel, delta, false));
            ck_assert_int_eq(add_later(y, &e, x, pw, pb, N), kind == 0);
            ck_assert_msg(same_bits(y, want, N * OUT), "%s, kind %d", e.k.name, kind);
            y = take_floats(N * OUT, NAN); /* what begins elsewhere is added at once */
            ck_assert(!mmi_linear_add(&e, y, start, mmi_operand_of(x, IN), pw, pb, N, panel, delta, true));
            ck_assert(same_bits(y, want, N * OUT));
            exec_free(&e);
        }
}
END_TEST

/* Two matrices that read the same rows; the second lies so many rows behind the first, and so does its gradient. */
typedef struct pair {
    int64_t apart, grads_apart;
    bool first_learns, second_learns, biased;
} pair;

enum { PAIR_IN = 6, FIRST = 4, SECOND = 7, BOTH = FIRST + SECOND, PAIR_ROWS = BOTH + 2, PAIR_N = 20 };

/* dw, from what is there, and dx of matrix w [out, PAIR_IN], whose outputs begin at column `at`. */
static void pair_backward64(double *dw, double *dx, const float *dy, const float *x, const double *w, int64_t N, int64_t at,
                            int64_t out)
{
    for (int64_t n = 0; n < N; n++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < PAIR_IN; i++) {
                dx[n * PAIR_IN + i] += (double)dy[n * BOTH + at + o] * w[o * PAIR_IN + i];
                if (dw)
                    dw[o * PAIR_IN + i] += (double)dy[n * BOTH + at + o] * x[n * PAIR_IN + i];
            }
}

static void check_pair(const mmi_exec *e, const pair *p, int64_t N, test_rng *rng)
{
    const int64_t second = (FIRST + p->apart) * PAIR_IN, grad = (FIRST + p->grads_apart) * PAIR_IN, size = PAIR_ROWS * PAIR_IN;
    float *x = take_random(rng, N * PAIR_IN, 1), *w = take_random(rng, size, 1), *g = take_random(rng, size, 1);
    float *b = take_random(rng, SECOND, 1), *dy = take_random(rng, N * BOTH, 1);
    float *y = take_floats(N * BOTH, NAN), *dx = take_floats(N * PAIR_IN, NAN);
    double *x64 = take_doubles(x, N * PAIR_IN), *w64 = take_doubles(w, size), *g64 = take_doubles(g, size);
    double *y64 = take(N * BOTH, sizeof *y64), *dx64 = take(N * PAIR_IN, sizeof *dx64);
    for (int64_t n = 0; n < N; n++) {
        ref_linear(y64 + n * BOTH, x64 + n * PAIR_IN, w64, NULL, 1, FIRST, PAIR_IN);
        ref_linear(y64 + n * BOTH + FIRST, x64 + n * PAIR_IN, w64 + second, p->biased ? take_doubles(b, SECOND) : NULL, 1,
                   SECOND, PAIR_IN);
    }
    pair_backward64(p->first_learns ? g64 : NULL, dx64, dy, x, w64, N, 0, FIRST);
    pair_backward64(p->second_learns ? g64 + grad : NULL, dx64, dy, x, w64 + second, N, FIRST, SECOND);
    const mmi_param ws[] = { { { w, MM_F32, FIRST, PAIR_IN }, p->first_learns ? g : NULL, NULL },
                             { { w + second, MM_F32, SECOND, PAIR_IN }, p->second_learns ? g + grad : NULL, NULL } };
    mmi_param bs[] = { { { 0 }, NULL, NULL }, { { 0 }, NULL, NULL } };
    if (p->biased)
        bs[1] = (mmi_param){ { b, MM_F32, 1, SECOND }, NULL, NULL };
    mmi_linear_group_forward(e, y, BOTH, mmi_operand_of(x, PAIR_IN), ws, bs, 2, N, NULL);
    mmi_linear_group_backward(e, dx, PAIR_IN, dy, BOTH, x, PAIR_IN, ws, bs, 2, N);
    ck_close(y, y64, N * BOTH, 1e-6, e->k.name);
    ck_close(dx, dx64, N * PAIR_IN, 1e-6, e->k.name);
    ck_close(g, g64, size, 1e-6, e->k.name); /* what lies beside gradients stays as it is */
}

START_TEST(matrices_beside_each_other_are_right_wherever_they_and_their_gradients_lie)
{
    static const pair pairs[] = {
        { 0, 0, true, true, false },  { 0, 0, false, false, false }, { 0, 0, true, true, true },
        { 0, 0, true, false, false }, { 0, 0, false, true, false },  { 0, 1, true, true, false },
        { 1, 0, true, true, false },  { 1, 2, true, true, true },
    };
    test_rng rng = { 32 };
    EACH_PATH_OF_FLOATS (path) {
        mmi_exec e = exec_create(path, 2, FOR_PRODUCTS);
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            for (int64_t N = 1; N <= PAIR_N; N += PAIR_N - 1)
                check_pair(&e, &pairs[i], N, &rng);
        exec_free(&e);
    }
}
END_TEST

START_TEST(matrices_of_two_dtypes_are_read_as_what_they_are)
{
    enum { N = 3 };
    test_rng rng = { 33 };
    struct {
        uint16_t first[2 * FIRST * PAIR_IN]; /* the second half is not read: the second lies where it would in float32 */
        float second[SECOND * PAIR_IN];
    } w = { { 0 }, { 0 } };
    float *x = take_random(&rng, N * PAIR_IN, 1), *some = take_random(&rng, BOTH * PAIR_IN, 1);
    float *panel = take_floats(BOTH * PAIR_IN, NAN), *y = take_floats(N * BOTH, NAN);
    double *x64 = take_doubles(x, N * PAIR_IN), *y64 = take(N * BOTH, sizeof *y64);
    EACH_PATH_OF_FLOATS (path) {
        mmi_exec e = exec_create(path, 1, FOR_PRODUCTS);
        memcpy(w.second, some + FIRST * PAIR_IN, sizeof w.second);
        e.k.narrow(w.first, some, MM_BF16, FIRST * PAIR_IN);
        e.k.widen(some, w.first, MM_BF16, FIRST * PAIR_IN);
        const mmi_param ws[] = { { { w.first, MM_BF16, FIRST, PAIR_IN }, NULL, NULL },
                                 { { w.second, MM_F32, SECOND, PAIR_IN }, NULL, NULL } };
        const mmi_param bs[] = { { { 0 }, NULL, NULL }, { { 0 }, NULL, NULL } };
        ref_linear(y64, x64, take_doubles(some, BOTH * PAIR_IN), NULL, N, BOTH, PAIR_IN);
        mmi_linear_group_forward(&e, y, BOTH, mmi_operand_of(x, PAIR_IN), ws, bs, 2, N, panel);
        ck_close(y, y64, N * BOTH, 1e-6, e.k.name);
        exec_free(&e);
    }
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("nn/linear", &tests);
    tcase_add_loop_test(tests, products_and_their_gradients_agree_with_the_reference, 0, SHAPES);
    tcase_add_test(tests, gradients_that_nobody_wants_are_left_out);
    tcase_add_test(tests, narrow_weights_give_the_products_of_what_they_hold);
    tcase_add_test(tests, what_is_left_to_be_added_is_what_would_have_been_added);
    tcase_add_test(tests, matrices_beside_each_other_are_right_wherever_they_and_their_gradients_lie);
    tcase_add_test(tests, matrices_of_two_dtypes_are_read_as_what_they_are);
    return run_suite(suite);
}
