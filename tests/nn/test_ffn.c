#include <string.h>

#include "backend/strips.h"
#include "model/convert.h"
#include "nn/arrays.h"
#include "nn/exec.h"
#include "nn/ffn.h"
#include "nn/gradient.h"
#include "nn/reference64.h"

enum { GATE, GATE_BIAS, UP, UP_BIAS, DOWN, DOWN_BIAS, PARAMS };
static const char *const names[] = { "gate", "gate bias", "up", "up bias", "down", "down bias" };

typedef struct ffn {
    int64_t N, C, F;
    int32_t act;
    bool gated, biased;
    float *h, *weights, *y0;          /* loss = Σ weights · y */
    float *w[PARAMS], *grad0[PARAMS]; /* NULL: there is none */
    int64_t sizes[PARAMS];
    double *h64, *w64[PARAMS], *y64;
    probes by_h, by_w[PARAMS];
    float *y, *dh, *grad[PARAMS];     /* parts of all; gate's and up's lie side by side, as in a model */
    float *all, *all1;
    int64_t size;
} ffn;

static double loss(void *arg)
{
    ffn *f = arg;
    double sum = 0;
    ref_ffn_params p = { f->w64[GATE], f->w64[GATE_BIAS], f->w64[UP], f->w64[UP_BIAS], f->w64[DOWN], f->w64[DOWN_BIAS],
                         f->C, f->F, f->act };
    ref_ffn(f->y64, f->h64, &p, f->N);
    for (int64_t i = 0; i < f->N * f->C; i++)
        sum += f->weights[i] * f->y64[i];
    return sum;
}

static float *part(ffn *f, int64_t n)
{
    float *p = f->all ? f->all + f->size : NULL;
    f->size += n;
    return p;
}

static void lay_out(ffn *f)
{
    f->size = 0;
    for (int p = 0; p < PARAMS; p++)
        f->grad[p] = f->sizes[p] ? part(f, f->sizes[p]) : NULL;
    f->y = part(f, f->N * f->C);
    f->dh = part(f, f->N * f->C);
}

static ffn prepare(ffn f, test_rng *rng)
{
    int64_t sizes[PARAMS] = { f.F * f.C, f.F, f.F * f.C, f.F, f.C * f.F, f.C }, total = 0;
    for (int p = 0; p < PARAMS; p++) {
        f.sizes[p] = (p % 2 && !f.biased) || (p <= GATE_BIAS && !f.gated) ? 0 : sizes[p];
        total += f.sizes[p];
    }
    float *w = take_random(rng, total, 0.5f);
    for (int p = 0; p < PARAMS; w += f.sizes[p++]) {
        f.w[p] = f.sizes[p] ? w : NULL;
        f.w64[p] = f.sizes[p] ? take_doubles(w, f.sizes[p]) : NULL;
        f.grad0[p] = take_random(rng, f.sizes[p], 1);
    }
    f.h = take_random(rng, f.N * f.C, 1);
    f.y0 = take_random(rng, f.N * f.C, 1);
    f.weights = take_random(rng, f.N * f.C, 1);
    f.h64 = take_doubles(f.h, f.N * f.C);
    f.y64 = take(f.N * f.C, sizeof(double));
    lay_out(&f);
    f.all = take_floats(f.size, 0);
    lay_out(&f);
    f.by_h = probes_take(f.h64, f.N * f.C, loss, &f, rng);
    for (int p = 0; p < PARAMS; p++)
        if (f.sizes[p])
            f.by_w[p] = probes_take(f.w64[p], f.sizes[p], loss, &f, rng);
    loss(&f);
    for (int64_t i = 0; i < f.N * f.C; i++)
        f.y64[i] += f.y0[i];
    return f;
}

static mmi_param param(const ffn *f, int p, int64_t rows, int64_t cols)
{
    return f->sizes[p] ? (mmi_param){ { f->w[p], MM_F32, rows, cols }, f->grad[p], NULL } : (mmi_param){ 0 };
}

static void work(void *arg, const mmi_exec *x)
{
    ffn *f = arg;
    mmi_ffn net = { .gate = param(f, GATE, f->F, f->C), .gate_bias = param(f, GATE_BIAS, 1, f->F),
                    .up = param(f, UP, f->F, f->C),     .up_bias = param(f, UP_BIAS, 1, f->F),
                    .down = param(f, DOWN, f->C, f->F), .down_bias = param(f, DOWN_BIAS, 1, f->C), .act = f->act };
    ck_assert_int_eq(mmi_ffn_inner(&net), f->F * (f->gated ? 2 : 1));
    for (int p = 0; p < PARAMS; p++)
        if (f->sizes[p])
            memcpy(f->grad[p], f->grad0[p], (size_t)f->sizes[p] * sizeof(float));
    memcpy(f->y, f->y0, (size_t)(f->N * f->C) * sizeof(float));
    for (int64_t i = 0; i < f->N * f->C; i++)
        f->dh[i] = NAN;
    float *inner = take_floats(f->N * mmi_ffn_inner(&net), NAN), *d_inner = take_floats(f->N * mmi_ffn_inner(&net), NAN);
    float *mid = take_floats(f->N * f->F, NAN), *delta = take_floats(f->N * f->C, NAN);
    mmi_ffn_forward(x, f->y, f->y, inner, mid, mmi_operand_of(f->h, net.up.w.cols), &net, f->N, NULL, delta, false);
    mid = take_floats(f->N * f->F, NAN); /* backward must make again what it needs */
    mmi_ffn_backward(x, f->dh, d_inner, mid, f->weights, f->h, inner, &net, f->N);
}

static void check(void *arg, const char *label)
{
    ffn *f = arg;
    char what[128];
    ck_close(f->y, f->y64, f->N * f->C, 1e-6, label);
    probes_check(&f->by_h, f->dh, NULL, 0, label);
    for (int p = 0; p < PARAMS; p++)
        if (f->sizes[p]) {
            snprintf(what, sizeof what, "%s: %s", label, names[p]);
            probes_check(&f->by_w[p], f->grad[p], f->grad0[p], 0, what);
        }
    f->all1 = take_copy(f->all, f->size);
}

static void same(void *arg, const char *label)
{
    ffn *f = arg;
    ck_assert_msg(same_bits(f->all, f->all1, f->size), "%s: other bits than with one thread", label);
}

static const int64_t shapes[][3] = { { 1, 6, 10 }, { 7, 10, 24 }, { 9, 24, 36 }, { 35, 36, 67 }, { 70, 13, 130 } };
enum { SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(every_kind_of_network_and_its_gradients_agree_with_the_reference)
{
    static const int32_t acts[] = { MMI_ACT_SILU, MMI_ACT_GELU, MMI_ACT_GELU_TANH, MMI_ACT_RELU };
    test_rng rng = { 90 + (unsigned)_i };
    for (int s = 0; s < SHAPES; s++)
        for (int kind = 0; kind < 4; kind++) {
            ffn f = prepare((ffn){ .N = shapes[s][0], .C = shapes[s][1], .F = shapes[s][2], .act = acts[_i],
                                   .gated = kind & 1, .biased = kind & 2 }, &rng);
            exec_on_all(&(exec_plan){ &f, FOR_PRODUCTS, work, check, same });
        }
}
END_TEST

START_TEST(large_inputs_stay_finite_forward_and_backward)
{
    test_rng rng = { 99 };
    for (int32_t act = 0; act < 4; act++) {
        ffn f = prepare((ffn){ .N = 9, .C = 8, .F = 19, .act = act, .gated = true }, &rng);
        for (int64_t i = 0; i < f.N * f.C; i++)
            f.h[i] *= 1e4f;
        EACH_PATH_OF_FLOATS (path) {
            mmi_exec x = exec_create(path, 1, FOR_PRODUCTS);
            work(&f, &x);
            ck_assert(all_finite(f.all, f.size));
            exec_free(&x);
        }
    }
}
END_TEST

/* A network in blocks, C and F multiples of 32, and what its matrices may have beside them. */
enum { WITH_GATE = 1, WITH_BIAS = 2, ON_GATE = 4, ON_UP = 8, ON_DOWN = 16 };

static mmi_param in_blocks(test_rng *rng, int32_t dtype, int64_t rows, int64_t cols, const mmi_loras *loras)
{
    float *w = take_random(rng, rows * cols, 0.5f);
    mmi_param p = { { take((int64_t)mmi_strips_bytes(dtype, rows, cols), 1), dtype, rows, cols }, NULL, loras };
    mmi_convert_matrix((void *)(uintptr_t)p.w.data, dtype, w, MM_F32, rows, cols);
    return p;
}

/* Numbers whose products and sums are exact in any order. */
static float *take_sixteenths(test_rng *rng, int64_t n)
{
    float *x = take_floats(n, 0);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)rng_between(rng, -16, 16) / 16;
    return x;
}

/* Of rank 1: what it adds is exact, and added at once. */
static const mmi_loras *lora_of(test_rng *rng, const mmi_lora_room *room, int64_t rows, int64_t cols)
{
    mmi_lora *lora = take(1, sizeof *lora);
    mmi_loras *loras = take(1, sizeof *loras);
    *lora = (mmi_lora){ .a = take_sixteenths(rng, cols), .b = take_sixteenths(rng, rows), .rank = 1, .scale = 2 };
    *loras = (mmi_loras){ lora, 1, room };
    return loras;
}

/* The network of N rows, which are quantized by whoever makes them where `ahead`. */
static void run_blocks(const mmi_exec *x, const mmi_ffn *net, float *y, const float *h, int64_t N, bool ahead)
{
    const int64_t C = net->up.w.cols, F = net->up.w.rows;
    float *inner = take_floats(N * mmi_ffn_inner(net), NAN), *mid = take_floats(N * F, NAN);
    float *delta = take_floats(N * C, NAN), *panel = take_floats(2 * F * C, NAN);
    mmi_quantizing q = mmi_ffn_quantizing(x, net, N, panel);
    ck_assert_ptr_nonnull(q.rows);
    for (int64_t i = 0; i < N && ahead; i++)
        mmi_quantize(&q, i, h + i * C, 0, C);
    mmi_ffn_forward(x, y, NULL, inner, mid, (mmi_operand){ h, C, ahead ? q.rows : NULL }, net, N, panel, delta, false);
    release_from(inner);
}

START_TEST(networks_in_blocks_give_each_row_what_it_gives_alone)
{
    enum { C = 64, F = 160, MOST = 63 };
    static const int kinds[] = { 0, WITH_GATE, WITH_GATE | WITH_BIAS, WITH_GATE | ON_GATE, WITH_GATE | ON_UP, WITH_GATE | ON_DOWN };
    static const int64_t rows[] = { 1, 3, 4, 16, MOST };
    test_rng rng = { 98 };
    float *h = take_sixteenths(&rng, MOST * C), *alone = take_floats(MOST * C, NAN), *y = take_floats(MOST * C, NAN);
    const mmi_lora_room room = { .down = take_floats(MOST, NAN) };
    const int kind = kinds[_i / 2], dtype = _i % 2 ? MM_Q4_0 : MM_Q8_0;
    mmi_ffn net = { .act = MMI_ACT_SILU,
                    .up = in_blocks(&rng, dtype, F, C, kind & ON_UP ? lora_of(&rng, &room, F, C) : NULL),
                    .down = in_blocks(&rng, dtype, C, F, kind & ON_DOWN ? lora_of(&rng, &room, C, F) : NULL) };
    if (kind & WITH_GATE)
        net.gate = in_blocks(&rng, dtype, F, C, kind & ON_GATE ? lora_of(&rng, &room, F, C) : NULL);
    if (kind & WITH_BIAS)
        net.gate_bias = (mmi_param){ { take_random(&rng, F, 1), MM_F32, 1, F }, NULL, NULL };
    EACH_PATH (path)
        for (int threads = 1; threads <= 3; threads++) {
            mmi_exec x = exec_create(path, threads, mmi_gemm_blocks_scratch(F));
            for (int64_t i = 0; i < MOST; i++)
                run_blocks(&x, &net, alone + i * C, h + i * C, 1, false);
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
                for (int ahead = 0; ahead < 2; ahead++) {
                    run_blocks(&x, &net, y, h, rows[r], ahead);
                    for (int64_t i = 0; i < rows[r] * C; i++)
                        ck_each(fabsf(y[i] - alone[i]) <= (kind & ON_DOWN ? 1e-5f * (1 + fabsf(alone[i])) : 0),
                                "%s, %s, kind %d: %lld rows, ahead %d: [%lld] is %g, not %g", x.k.name,
                                mm_dtype_name(dtype), kind, (long long)rows[r], ahead, (long long)i, (double)y[i],
                                (double)alone[i]);
                }
            exec_free(&x);
        }
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("nn/ffn", &tests);
    tcase_add_loop_test(tests, every_kind_of_network_and_its_gradients_agree_with_the_reference, 0, 4);
    tcase_add_loop_test(tests, networks_in_blocks_give_each_row_what_it_gives_alone, 0, 12);
    tcase_add_test(tests, large_inputs_stay_finite_forward_and_backward);
    return run_suite(suite);
}
