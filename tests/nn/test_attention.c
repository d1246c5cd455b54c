#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/dtype.h"
#include "nn/arrays.h"
#include "nn/attention.h"
#include "nn/exec.h"
#include "nn/gradient.h"
#include "nn/reference64.h"

#define MOST_SEGMENTS 5
#define UNTOUCHED 12345.0f

#define ALL_BUT_TWO 2
#define ALL_OF_FIRST 3

/* Lengths of segments; with `capacity`, keys and values lie in a cache, `past` tokens of it before the new ones. */
typedef struct shape {
    int64_t H, G, D, lengths[MOST_SEGMENTS];
    int masked; /* true: some keys; or all but the last two of each segment; or some, and all of the first one */
    int64_t capacity, past[MOST_SEGMENTS];
} shape;

typedef struct attention {
    shape s;
    int64_t N, keys, segments;    /* query rows, key rows, segments */
    int64_t ldq, ldk;
    mmi_segment segment[MOST_SEGMENTS];
    ref_segment plain[MOST_SEGMENTS];
    float *q, *k, *v, *weights;   /* rows ldq, ldk apart; loss = Σ weights · out, weights [N, H D] */
    double *q64, *k64, *v64, *out64;
    probes by_q, by_k, by_v;
    float *out, *lse, *dq, *dk, *dv, *all, *all1;
    int64_t size;
    bool rounded;
} attention;

static double loss(void *arg)
{
    attention *a = arg;
    double sum = 0;
    ref_attention(a->out64, a->q64, a->k64, a->v64, a->s.H, a->s.G, a->s.D, a->plain, a->segments);
    for (int64_t i = 0; i < a->N * a->s.H * a->s.D; i++)
        sum += a->weights[i] * a->out64[i];
    return sum;
}

/* A mask with zeros in front and in between, that leaves every segment something to see, but the first, if so said. */
static int32_t *random_mask(test_rng *rng, int64_t n, int masked, bool first)
{
    int32_t *mask = take(n, sizeof *mask);
    if (masked == ALL_OF_FIRST && first)
        return mask;
    int64_t hidden = masked == ALL_BUT_TWO ? (n > 2 ? n - 2 : 0) : rng_between(rng, 0, (int)n / 2);
    for (int64_t i = hidden; i < n; i++)
        mask[i] = i == hidden || masked == ALL_BUT_TWO || rng_between(rng, 0, 3) > 0;
    return mask;
}

static void lay_segments(attention *a, test_rng *rng)
{
    const shape *s = &a->s;
    for (; a->segments < MOST_SEGMENTS && s->lengths[a->segments] > 0; a->segments++) {
        int64_t i = a->segments, count = s->lengths[i], past = s->past[i];
        const int32_t *mask = s->masked ? random_mask(rng, past + count, s->masked, i == 0) : NULL;
        a->segment[i] = (mmi_segment){ a->N, count, past, s->capacity ? i : 0, mask };
        a->plain[i] = (ref_segment){ a->N, count, s->capacity ? i * s->capacity : a->N, past, mask };
        a->N += count;
    }
    a->keys = s->capacity ? a->segments * s->capacity : a->N;
}

static double *packed(const float *x, int64_t rows, int64_t ld, int64_t width)
{
    double *y = take(rows * width, sizeof *y);
    for (int64_t i = 0; i < rows * width; i++)
        y[i] = x[i / width * ld + i % width];
    return y;
}

static float *part(attention *a, int64_t n)
{
    float *p = a->all ? a->all + a->size : NULL;
    a->size += n;
    return p;
}

static void lay_out(attention *a)
{
    a->size = 0;
    a->out = part(a, a->N * a->s.H * a->s.D);
    a->lse = part(a, a->N * a->s.H);
    a->dq = part(a, a->N * a->ldq);
    a->dk = part(a, a->keys * a->ldk);
    a->dv = part(a, a->keys * a->ldk);
}

static attention prepare(const shape *s, test_rng *rng)
{
    attention a = { .s = *s };
    int64_t wide = s->H * s->D, narrow = s->G * s->D;
    lay_segments(&a, rng);
    a.ldq = wide + 2 * narrow; /* as in a model, where they share rows */
    a.ldk = s->capacity ? narrow : a.ldq;
    a.q = take_random(rng, a.N * a.ldq, 2);
    a.k = take_random(rng, a.keys * a.ldk, 2);
    a.v = take_random(rng, a.keys * a.ldk, 1);
    a.weights = take_random(rng, a.N * wide, 1);
    a.q64 = packed(a.q, a.N, a.ldq, wide);
    a.k64 = packed(a.k, a.keys, a.ldk, narrow);
    a.v64 = packed(a.v, a.keys, a.ldk, narrow);
    a.out64 = take(a.N * wide, sizeof(double));
    lay_out(&a);
    a.all = take_floats(a.size, 0);
    lay_out(&a);
    loss(&a);
    return a;
}

/* What gradients should be, at the price of many losses. */
static void take_gradients(attention *a, test_rng *rng)
{
    int64_t wide = a->s.H * a->s.D, narrow = a->s.G * a->s.D;
    a->by_q = probes_take(a->q64, a->N * wide, loss, a, rng);
    a->by_k = probes_take(a->k64, a->keys * narrow, loss, a, rng);
    a->by_v = probes_take(a->v64, a->keys * narrow, loss, a, rng);
    loss(a); /* out64, where nothing is moved */
}

static mmi_attention as_given(attention *a)
{
    return (mmi_attention){ .q = a->q, .k = a->k, .v = a->v, .ldq = a->ldq, .ldk = a->ldk,
                            .head_stride = a->s.D, .sequence_stride = a->s.capacity * a->ldk, .H = a->s.H, .G = a->s.G, .D = a->s.D,
                            .segments = a->segment, .segment_count = a->segments,
                            .piece_first = take(a->segments + 1, sizeof(int64_t)), .rounded = a->rounded };
}

static void work(void *arg, const mmi_exec *x)
{
    attention *a = arg;
    mmi_attention given = as_given(a);
    for (int64_t i = 0; i < a->size; i++)
        a->all[i] = UNTOUCHED;
    mmi_attention_forward(x, a->out, a->lse, &given);
    if (!a->s.capacity)
        mmi_attention_backward(x, a->dq, a->dk, a->dv, a->weights, a->out, a->lse, &given);
}

static float *close_gaps(const float *x, int64_t rows, int64_t ld, int64_t width, const char *label)
{
    float *y = take_floats(rows * width, 0);
    for (int64_t i = 0; i < rows * width; i++)
        y[i] = x[i / width * ld + i % width];
    for (int64_t i = 0; i < rows * ld; i++)
        ck_each(i % ld < width || x[i] == UNTOUCHED, "%s: a gap between rows was written", label);
    return y;
}

static void check_out(const attention *a, const char *label)
{
    int64_t wide = a->s.H * a->s.D;
    ck_assert_msg(all_finite(a->out, a->N * wide), "%s", label);
    for (int64_t i = 0; i < a->N * wide; i++)
        ck_each(a->out[i] == 0 || a->out64[i] != 0, "%s: row %lld sees masked keys only", label, (long long)(i / wide));
    ck_close(a->out, a->out64, a->N * wide, 2e-6, label);
}

static void check(void *arg, const char *label)
{
    attention *a = arg;
    int64_t wide = a->s.H * a->s.D, narrow = a->s.G * a->s.D;
    check_out(a, label);
    if (!a->s.capacity) {
        probes_check(&a->by_q, close_gaps(a->dq, a->N, a->ldq, wide, label), NULL, 1e-4, label);
        probes_check(&a->by_k, close_gaps(a->dk, a->keys, a->ldk, narrow, label), NULL, 1e-4, label);
        probes_check(&a->by_v, close_gaps(a->dv, a->keys, a->ldk, narrow, label), NULL, 1e-4, label);
    }
    a->all1 = take_copy(a->all, a->size);
}

static void same(void *arg, const char *label)
{
    attention *a = arg;
    ck_assert_msg(same_bits(a->all, a->all1, a->size), "%s: other bits than with one thread", label);
}

/* What any path needs, rounding or not. */
static int64_t scratch_of(const shape *s)
{
    int64_t most = 0;
    EACH_PATH (path) {
        mmi_kernels k;
        mmi_kernels_init(&k, path->cpu);
        int64_t n = mmi_attention_scratch(&k, s->H, s->G, s->D, true);
        ck_assert_int_ge(n, mmi_attention_scratch(&k, s->H, s->G, s->D, false));
        most = n > most ? n : most;
    }
    return most;
}

static void run_on_all(const shape *s, unsigned seed)
{
    test_rng rng = { seed };
    attention a = prepare(s, &rng);
    if (!s->capacity)
        take_gradients(&a, &rng);
    exec_on_all(&(exec_plan){ &a, scratch_of(s), work, check, same });
}

/* Lengths round the tiles' 256 rows and 64 keys, and spans of 128 to 512; any number of heads; D that fills no vector. */
static const shape shapes[] = {
    { .H = 1, .G = 1, .D = 6, .lengths = { 1 } },
    { .H = 1, .G = 1, .D = 10, .lengths = { 270 } },
    { .H = 2, .G = 1, .D = 36, .lengths = { 129, 1, 2 } },
    { .H = 8, .G = 2, .D = 10, .lengths = { 70 } },
    { .H = 3, .G = 3, .D = 24, .lengths = { 64, 65, 63, 1, 7 } },
    { .H = 7, .G = 1, .D = 6, .lengths = { 37, 40 } },
    { .H = 6, .G = 2, .D = 130, .lengths = { 33 } },
    { .H = 5, .G = 5, .D = 3, .lengths = { 9, 11 } },
    { .H = 4, .G = 4, .D = 1, .lengths = { 66 } },
    { .H = 8, .G = 8, .D = 2, .lengths = { 5, 5, 5 } },
    { .H = 3, .G = 1, .D = 2, .lengths = { 519 } }, /* five spans, which are cut where no tile of queries is */
    { .H = 4, .G = 2, .D = 5, .lengths = { 300, 128, 1, 257 } }, /* rows of three, one and three spans */
    { .H = 8, .G = 8, .D = 2, .lengths = { 513 } },              /* so many key heads that spans are long */
    { .H = 16, .G = 16, .D = 3, .lengths = { 70 } },
    { .H = 8, .G = 2, .D = 64, .lengths = { 1, 2, 3 } }, /* few rows of whole vectors */
    { .H = 3, .G = 1, .D = 32, .lengths = { 2, 130, 1 } },
    { .H = 4, .G = 2, .D = 32, .lengths = { 131, 67 } }, /* few rows in a tile, and in a part of one that has more */
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(causal_attention_and_its_gradients_agree_with_the_reference)
{
    run_on_all(&shapes[_i], 140 + (unsigned)_i);
}
END_TEST

static const shape masked[] = {
    { .H = 1, .G = 1, .D = 10, .lengths = { 150 }, .masked = true },
    { .H = 1, .G = 1, .D = 2, .lengths = { 517 }, .masked = true },
    { .H = 6, .G = 3, .D = 24, .lengths = { 80, 17, 3 }, .masked = true },
    { .H = 4, .G = 1, .D = 7, .lengths = { 70, 1 }, .masked = true },
    { .H = 2, .G = 2, .D = 36, .lengths = { 2, 5, 66 }, .masked = true },
    { .H = 4, .G = 2, .D = 10, .lengths = { 90, 3 }, .masked = ALL_BUT_TWO },
    { .H = 8, .G = 4, .D = 32, .lengths = { 300, 1, 4 }, .masked = ALL_BUT_TWO },
    { .H = 4, .G = 2, .D = 10, .lengths = { 300, 70 }, .masked = ALL_OF_FIRST },
    { .H = 8, .G = 4, .D = 32, .lengths = { 2, 30, 9 }, .masked = ALL_OF_FIRST },
};
enum { MASKED = sizeof masked / sizeof *masked };

START_TEST(masked_keys_are_seen_by_nobody_and_rows_that_see_no_others_take_and_give_nothing)
{
    run_on_all(&masked[_i], 160 + (unsigned)_i);
}
END_TEST

static const shape cached[] = {
    { 1, 1, 6, { 1 }, false, 1, { 0 } },
    { 4, 2, 10, { 1, 7, 70, 3 }, false, 210, { 0, 5, 64, 130 } },
    { 8, 1, 24, { 1, 1, 1 }, false, 300, { 299, 63, 64 } },
    { 3, 3, 130, { 2, 9 }, true, 90, { 70, 33 } },
    { 6, 2, 36, { 257, 1 }, false, 263, { 5, 200 } },
    { 8, 2, 64, { 1, 2, 1 }, false, 400, { 399, 127, 128 } }, /* few rows, and more keys than they have in a tile */
    { 5, 1, 32, { 1, 1 }, true, 300, { 257, 20 } },
    { 4, 4, 96, { 1, 8, 5 }, true, 300, { 257, 120, 0 } },
    { 8, 2, 64, { 1, 2 }, false, 1200, { 1198, 20 } }, /* so many keys that they are met in parts, of some */
    { 3, 1, 5, { 1 }, true, 1100, { 1099 } },
    { 4, 4, 32, { 8, 1, 3 }, true, 1100, { 1087, 1050, 1024 } },
    { 8, 2, 64, { 2, 1 }, ALL_BUT_TWO, 1200, { 1198, 20 } },
    { 4, 2, 32, { 100, 3, 9 }, ALL_BUT_TWO, 1250, { 1100, 1090, 0 } },
    { 6, 2, 10, { 30, 1 }, true, 1100, { 1070, 3 } },
    { 8, 2, 64, { 1, 2 }, ALL_OF_FIRST, 400, { 399, 20 } },
    { 8, 2, 64, { 2, 1 }, ALL_OF_FIRST, 1200, { 1198, 20 } },
    { 3, 1, 5, { 1, 2 }, ALL_OF_FIRST, 1100, { 1099, 40 } },
    { 4, 2, 32, { 100, 3, 9 }, ALL_OF_FIRST, 1250, { 1100, 1090, 0 } },
    { 4, 2, 32, { 100, 3, 150 }, false, 1250, { 1100, 1090, 0 } }, /* parts of keys beside a row that is longer than a tile */
    { 8, 8, 3, { 1, 1 }, false, 1030, { 1029, 1029 } }, /* one after the other */
    { 18, 9, 3, { 1, 1, 1 }, false, 1030, { 1029, 1, 1029 } }, /* so many heads that there are none */
};
enum { CACHED = sizeof cached / sizeof *cached };

START_TEST(new_tokens_see_the_cached_ones_before_them)
{
    run_on_all(&cached[_i], 180 + (unsigned)_i);
}
END_TEST

/* ‖a - b‖ / ‖b‖ of `width` numbers of each row. */
static double off_by(const float *a, const float *b, int64_t rows, int64_t ld, int64_t width)
{
    double off = 0, size = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = i * ld; n < i * ld + width; n++) {
            off += ((double)a[n] - b[n]) * ((double)a[n] - b[n]);
            size += (double)b[n] * b[n];
        }
    return size > 0 ? sqrt(off / size) : sqrt(off);
}

/* Each head's keys one behind the other, as a cache has them, in `dtype`; and the same numbers widened. */
static void narrow_cache(attention *a, const mmi_kernels *k, int32_t dtype, void **narrow, float **wide, const float *from)
{
    int64_t G = a->s.G, D = a->s.D, tokens = a->s.capacity, n = a->keys * G * D;
    float *turned = take_floats(n, 0);
    for (int64_t i = 0; i < n; i++) {
        int64_t d = i % D, t = i / D % tokens, g = i / D / tokens % G, s = i / D / tokens / G;
        turned[i] = from[(s * tokens + t) * a->ldk + g * D + d];
    }
    *narrow = take((int64_t)mmi_dtype_bytes(dtype, n), 1);
    *wide = take_floats(n, 0);
    k->narrow(*narrow, turned, dtype, n);
    k->widen(*wide, *narrow, dtype, n);
}

START_TEST(keys_and_values_in_fewer_bits_count_as_what_they_widen_to)
{
    static const shape shapes_of_32[] = {
        { 4, 2, 32, { 1, 7, 70, 3 }, false, 210, { 0, 5, 64, 130 } },
        { 3, 3, 64, { 2, 9 }, true, 90, { 70, 33 } },
        { 8, 2, 64, { 1, 1, 2 }, false, 300, { 299, 127, 5 } },
        { 4, 2, 96, { 1, 3 }, false, 150, { 140, 2 } },
        { 4, 1, 64, { 1, 2 }, false, 1300, { 1290, 1100 } },
        { 2, 1, 1024 + 32, { 1, 2 }, false, 10, { 7, 0 } }, /* wider than what few rows' own kernels take */
    };
    static const int32_t dtypes[] = { MM_F32, MM_BF16, MM_Q8_0 };
    test_rng rng = { 220 };
    attention a = prepare(&shapes_of_32[_i / 3], &rng);
    int32_t dtype = dtypes[_i % 3];
    int64_t n = a.N * a.s.H * a.s.D;
    EACH_PATH_OF_FLOATS (path) {
        mmi_exec x = exec_create(path, 2, scratch_of(&a.s));
        void *k, *v;
        float *wide_k, *wide_v, *expected = take_floats(n, 0);
        narrow_cache(&a, &x.k, dtype, &k, &wide_k, a.k);
        narrow_cache(&a, &x.k, dtype, &v, &wide_v, a.v);
        mmi_attention given = as_given(&a);
        given.ldk = a.s.D;
        given.head_stride = a.s.capacity * a.s.D;
        given.sequence_stride = a.s.G * given.head_stride;
        for (int rounded = 0; rounded < 2; rounded++) {
            given.rounded = rounded;
            given.k = wide_k;
            given.v = wide_v;
            given.kv_dtype = MM_F32;
            mmi_attention_forward(&x, expected, NULL, &given);
            given.k = k;
            given.v = v;
            given.kv_dtype = dtype;
            mmi_attention_forward(&x, a.out, NULL, &given);
            if (dtype == MM_BF16) /* whose scores are summed in another order */
                ck_assert_double_le(off_by(a.out, expected, 1, n, n), 2e-6);
            else
                ck_assert_msg(same_bits(a.out, expected, n), "%s, %s", x.k.name, mm_dtype_name(dtype));
            if (dtype == MM_F32 && !rounded)
                check_out(&a, "one head's keys behind the other");
        }
        exec_free(&x);
    }
}
END_TEST

START_TEST(large_scores_do_not_overflow)
{
    static const shape s = { .H = 2, .G = 1, .D = 8, .lengths = { 100 } };
    test_rng rng = { 201 };
    attention a = prepare(&s, &rng);
    for (int64_t i = 0; i < a.N * a.ldq; i++) {
        a.q[i] *= 1000;
        a.k[i] *= 1000;
    }
    EACH_PATH_OF_FLOATS (path) {
        mmi_exec x = exec_create(path, 1, scratch_of(&s));
        work(&a, &x);
        ck_assert(all_finite(a.all, a.size));
        exec_free(&x);
    }
}
END_TEST

/* Who was told what of one segment and key head. */
typedef struct told {
    const attention *a;
    float *q, *k, *v; /* what `before` puts where attention reads */
    atomic_int before[8][8], after[8][8];
    atomic_bool early;
} told;

static int64_t index_of(const told *t, const mmi_segment *s)
{
    return s - t->a->segment;
}

static void fill_in(void *arg, const mmi_segment *s, int64_t g)
{
    told *t = arg;
    const attention *a = t->a;
    const int64_t heads = a->s.H / a->s.G, D = a->s.D;
    atomic_fetch_add(&t->before[index_of(t, s)][g], 1);
    for (int64_t i = s->row; i < s->row + s->count; i++)
        memcpy(a->q + i * a->ldq + g * heads * D, t->q + i * a->ldq + g * heads * D,
               (size_t)(heads * D) * sizeof(float));
    const int64_t key = a->s.capacity ? s->sequence * a->s.capacity : s->row;
    for (int64_t i = key; i < key + s->past + s->count; i++) {
        memcpy(a->k + i * a->ldk + g * D, t->k + i * a->ldk + g * D, (size_t)D * sizeof(float));
        memcpy(a->v + i * a->ldk + g * D, t->v + i * a->ldk + g * D, (size_t)D * sizeof(float));
    }
}

static void look_at(void *arg, const mmi_segment *s, int64_t g)
{
    told *t = arg;
    const int64_t heads = t->a->s.H / t->a->s.G, D = t->a->s.D;
    atomic_fetch_add(&t->after[index_of(t, s)][g], 1);
    for (int64_t i = s->row; i < s->row + s->count; i++)
        for (int64_t n = g * heads * D; n < (g + 1) * heads * D; n++)
            if (isnan(t->a->out[i * t->a->s.H * D + n]))
                atomic_store(&t->early, true);
}

static float *moved(float *from, int64_t n)
{
    float *to = take_floats(n, 0);
    memcpy(to, from, (size_t)n * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        from[i] = NAN;
    return to;
}

START_TEST(short_segments_are_finished_before_and_after_by_whoever_does_them)
{
    static const shape short_ones[] = {
        { .H = 4, .G = 2, .D = 32, .lengths = { 5, 1, 9, 1, 1 } },
        { .H = 4, .G = 2, .D = 32, .lengths = { 2, 1, 1 }, .capacity = 1200, .past = { 1100, 1030, 3 } }, /* in parts */
    };
    const shape s = short_ones[_i];
    test_rng rng = { 203 };
    EACH_PATH_OF_FLOATS (path)
        for (int threads = 1; threads <= 3; threads++) {
            attention a = prepare(&s, &rng);
            mmi_exec x = exec_create(path, threads, scratch_of(&s));
            told t = { .a = &a };
            t.q = moved(a.q, a.N * a.ldq);
            t.k = moved(a.k, a.keys * a.ldk);
            t.v = moved(a.v, a.keys * a.ldk);
            for (int64_t i = 0; i < a.N * s.H * s.D; i++)
                a.out[i] = NAN;
            mmi_attention given = as_given(&a);
            given.before = fill_in;
            given.after = look_at;
            given.arg = &t;
            ck_assert(mmi_attention_is_short(&given));
            mmi_attention_forward(&x, a.out, NULL, &given);
            for (int64_t i = 0; i < given.segment_count; i++)
                for (int64_t g = 0; g < s.G; g++)
                    ck_assert_msg(atomic_load(&t.before[i][g]) == 1 && atomic_load(&t.after[i][g]) == 1,
                                  "%s: segment %lld, head %lld", x.k.name, (long long)i, (long long)g);
            ck_assert(!atomic_load(&t.early));
            check_out(&a, x.k.name);
            exec_free(&x);
        }
}
END_TEST

static void backwards(void *user, int64_t pieces, mm_piece_fn piece, void *job)
{
    (void)user;
    for (int64_t i = pieces - 1; i >= 0; i--)
        piece(job, i, 0);
}

START_TEST(behind_a_long_text_a_sequence_has_the_same_bits_beside_any_others_and_in_any_order)
{
    static const shape s = { .H = 8, .G = 4, .D = 32, .lengths = { 1, 2, 1, 1, 1 }, .capacity = 1600,
                             .past = { 1500, 1598, 5, 1023, 600 } };
    static const int64_t together[] = { 5, 1, 3, 2 }; /* the parts of five are met one after the other, else apart */
    test_rng rng = { 204 };
    EACH_PATH_OF_FLOATS (path) {
        attention a = prepare(&s, &rng);
        mmi_exec x = exec_create(path, 3, scratch_of(&s));
        float *expected = NULL;
        for (int i = 0; i < 2 * 4; i++) {
            if (i == 4) {
                mmi_pool_free(x.pool);
                ck_ok(mmi_pool_create_on(backwards, NULL, 3, &x.pool));
            }
            mmi_attention given = as_given(&a);
            given.segment_count = together[i % 4];
            mmi_attention_forward(&x, a.out, a.lse, &given);
            if (i == 0) {
                check_out(&a, x.k.name);
                expected = take_copy(a.out, a.N * s.H * s.D);
            }
            const mmi_segment *last = &a.segment[together[i % 4] - 1];
            ck_assert_msg(same_bits(a.out, expected, (last->row + last->count) * s.H * s.D), "%s, %d", x.k.name, i);
            memset(a.out, 0xFF, (size_t)(a.N * s.H * s.D) * sizeof *a.out);
        }
        exec_free(&x);
    }
}
END_TEST

START_TEST(a_segment_is_short_up_to_a_tile_of_queries)
{
    mmi_segment segments[] = { { .count = 64 }, { .count = 1 } };
    mmi_attention a = { .H = 8, .G = 2, .D = 64, .segments = segments, .segment_count = 2 };
    ck_assert(mmi_attention_is_short(&a));
    segments[1].count = 65;
    ck_assert(!mmi_attention_is_short(&a));
    a.segment_count = 1;
    ck_assert(mmi_attention_is_short(&a));
}
END_TEST

START_TEST(nothing_is_kept_for_backward_when_it_is_not_wanted)
{
    test_rng rng = { 202 };
    attention a = prepare(&shapes[3], &rng);
    mmi_exec x = exec_create(mmi_path_get(0), 1, scratch_of(&a.s));
    mmi_attention given = as_given(&a);
    mmi_attention_forward(&x, a.out, NULL, &given);
    check_out(&a, "without lse");
    exec_free(&x);
}
END_TEST

START_TEST(scratch_memory_does_not_grow_with_the_length)
{
    mmi_kernels k;
    mmi_kernels_init(&k, 0);
    ck_assert_int_lt(mmi_attention_scratch(&k, 8, 2, 64, false) * (int64_t)sizeof(float), 512 << 10);
    ck_assert_int_gt(mmi_attention_scratch(&k, 1, 1, 1, false), 0);
    ck_assert_int_lt(scratch_of(&(shape){ .H = 8, .G = 2, .D = 64 }) * (int64_t)sizeof(float), 1 << 20);
}
END_TEST

START_TEST(scratch_memory_grows_with_the_width_of_heads)
{
    mmi_kernels k;
    mmi_kernels_init(&k, 0);
    for (int64_t D = 1, before = 0; D <= 1 << 26; D *= 2) {
        int64_t n = mmi_attention_scratch(&k, 1, 1, D, false);
        ck_assert_int_ge(n, before); /* equal where 32 bits can't address it */
        before = n;
    }
}
END_TEST

/* A number rounded to bf16 is off by 2^-9 at most. It is the scores that count, in their exponents: these are up to 12
 * here. */
#define ROUNDED_OFF 0.008

static void check_rounded(const attention *a, const float *exact, const char *label)
{
    const int64_t wide = a->s.H * a->s.D, narrow = a->s.G * a->s.D;
    const struct {
        const float *got;
        int64_t rows, ld, width;
        const char *name;
    } parts[] = { { a->out, a->N, wide, wide, "out" },
                  { a->dq, a->N, a->ldq, wide, "dq" },
                  { a->dk, a->keys, a->ldk, narrow, "dk" },
                  { a->dv, a->keys, a->ldk, narrow, "dv" } };
    for (int i = 0; i < (a->s.capacity ? 1 : 4); i++) {
        double off = off_by(parts[i].got, exact + (parts[i].got - a->all), parts[i].rows, parts[i].ld, parts[i].width);
        ck_assert_msg(off <= ROUNDED_OFF, "%s: %s is off by %g", label, parts[i].name, off);
    }
    int64_t otherwise = 0; /* what is not written, gaps between rows, stays so */
    for (int64_t i = 0; i < a->size; i++)
        otherwise += (a->all[i] == UNTOUCHED) != (exact[i] == UNTOUCHED);
    ck_assert_msg(otherwise == 0, "%s: %lld numbers are written, or not, that should not, or should", label,
                  (long long)otherwise);
}

static void rounded_on_all(const shape *s, unsigned seed)
{
    test_rng rng = { seed };
    attention a = prepare(s, &rng);
    const int64_t scratch = scratch_of(s);
    int64_t longest = 0;
    for (int64_t i = 0; i < a.segments; i++)
        longest = a.segment[i].count > longest ? a.segment[i].count : longest;
    EACH_PATH_OF_FLOATS (path) {
        float *exact = NULL, *one = NULL;
        for (int threads = 1; threads <= 17; threads += threads < 3 ? 2 : 14) { /* many have parts of tiles */
            mmi_exec x = exec_create(path, threads, scratch);
            const char *name = path->name;
            work(&a, &x);
            if (threads == 1)
                exact = take_copy(a.all, a.size);
            ck_assert_msg(same_bits(a.all, exact, a.size), "%s: other bits than with one thread, exact", name);
            a.rounded = true;
            work(&a, &x);
            a.rounded = false;
            if (threads == 1)
                one = take_copy(a.all, a.size);
            check_rounded(&a, exact, name);
            ck_assert_msg(same_bits(a.all, one, a.size), "%s: other bits than with one thread", name);
            bool rounds = longest * (s->H / s->G) > 8 && x.k.gemm_depth >= 512;
            ck_assert_msg(same_bits(one, exact, a.size) == !rounds, "%s: rounded %d", name, rounds);
            exec_free(&x);
        }
    }
}

START_TEST(any_number_of_threads_gives_the_same_bits_and_rounded_products_stay_near)
{
    if (_i < SHAPES)
        rounded_on_all(&shapes[_i], 240 + (unsigned)_i);
    else if (_i < SHAPES + MASKED)
        rounded_on_all(&masked[_i - SHAPES], 240 + (unsigned)_i);
    else
        rounded_on_all(&cached[_i - SHAPES - MASKED], 240 + (unsigned)_i);
}
END_TEST

int main(void)
{
    TCase *tests;
    Suite *suite = plain_suite("nn/attention", &tests);
    tcase_add_loop_test(tests, causal_attention_and_its_gradients_agree_with_the_reference, 0, SHAPES);
    tcase_add_loop_test(tests, masked_keys_are_seen_by_nobody_and_rows_that_see_no_others_take_and_give_nothing, 0, MASKED);
    tcase_add_loop_test(tests, new_tokens_see_the_cached_ones_before_them, 0, CACHED);
    tcase_add_loop_test(tests, keys_and_values_in_fewer_bits_count_as_what_they_widen_to, 0, 18);
    tcase_add_loop_test(tests, any_number_of_threads_gives_the_same_bits_and_rounded_products_stay_near, 0,
                        SHAPES + MASKED + CACHED);
    tcase_add_test(tests, large_scores_do_not_overflow);
    tcase_add_loop_test(tests, short_segments_are_finished_before_and_after_by_whoever_does_them, 0, 2);
    tcase_add_test(tests, behind_a_long_text_a_sequence_has_the_same_bits_beside_any_others_and_in_any_order);
    tcase_add_test(tests, a_segment_is_short_up_to_a_tile_of_queries);
    tcase_add_test(tests, nothing_is_kept_for_backward_when_it_is_not_wanted);
    tcase_add_test(tests, scratch_memory_does_not_grow_with_the_length);
    tcase_add_test(tests, scratch_memory_grows_with_the_width_of_heads);
    return run_suite(suite);
}
