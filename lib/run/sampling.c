#include "run/sampling.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/options.h"

MMI_OPTIONS_INIT(mm_sampling, MM_SAMPLING_INIT)

static mm_status fail_range(const char *name, double value, const char *rule)
{
    return mmi_fail(MM_ERR_ARG, "%s is %g, must be %s", name, value, rule);
}

mm_status mmi_sampling_check(const mm_sampling *s)
{
    if (!(s->temperature >= 0) || isinf(s->temperature))
        return fail_range("temperature", s->temperature, "finite and 0 or more");
    if (!(s->top_p > 0 && s->top_p <= 1))
        return fail_range("top_p", s->top_p, "above 0 and at most 1");
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return fail_range("min_p", s->min_p, "from 0 to 1");
    if (!(s->repetition_penalty > 0) || isinf(s->repetition_penalty))
        return fail_range("repetition_penalty", s->repetition_penalty, "finite and above 0");
    if (s->top_k < 0)
        return fail_range("top_k", (double)s->top_k, "0 or more");
    return MM_OK;
}

/* Of logits [V], whose largest is `most`, the first. `at` is scratch. */
static int32_t argmax(const mmi_kernels *k, const float *logits, int64_t V, float most, int32_t *at)
{
    k->find(at, logits, most, most, V, 0);
    return at[0];
}

static mmi_candidate candidate(float logit, int64_t id)
{
    uint32_t bits, sign = UINT32_C(1) << 31;
    logit += 0.0f; /* no -0, which would come after 0 */
    memcpy(&bits, &logit, sizeof bits);
    bits = bits & sign ? ~bits : bits | sign; /* ordered as the logits are */
    return (mmi_candidate)bits << 32 | (uint32_t)~id;
}

static double probability(mmi_candidate c, const float *p)
{
    return (double)p[(uint32_t)~c];
}

static void swap(mmi_candidate *a, mmi_candidate *b)
{
    mmi_candidate c = *a;
    *a = *b;
    *b = c;
}

/* Those of c [n] that are likelier than its first one move in front of it; how many, and in *weight what they weigh.
 * Without branches on what they are, which can't be foreseen. */
static int64_t split(mmi_candidate *c, int64_t n, const float *p, double *weight)
{
    int64_t likelier = 0;
    double sum = 0;
    for (int64_t i = 1; i < n; i++) {
        mmi_candidate each = c[i];
        bool wins = each > c[0];
        c[i] = c[likelier + 1];
        c[likelier + 1] = each;
        likelier += wins;
        sum += wins ? probability(each, p) : 0;
    }
    swap(&c[0], &c[likelier]);
    *weight = sum;
    return likelier;
}

/* One of c [n] that is likely to be in the middle of them moves to its front: the median of three, from anywhere, since
 * splitting leaves equal logits in orders of which no fixed places are a fair sample. *state is of the generator. */
static void choose_pivot(mmi_candidate *c, int64_t n, uint64_t *state)
{
    mmi_candidate *three[3];
    for (int i = 0; i < 3; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        three[i] = c + ((*state >> 32) * (uint64_t)n >> 32);
    }
    const mmi_candidate x = *three[0], y = *three[1], z = *three[2];
    swap(c, three[(x > y) == (y > z) ? 1 : (y > x) == (x > z) ? 0 : 2]);
}

/* The likeliest of c [n] move to its front: at most `most`, in no order but that the least likely is last, and as few
 * as weigh `share` with the *weight of others, to which they are added. How many. */
static int64_t likeliest(mmi_candidate *c, int64_t n, const float *p, int64_t most, double share, double *weight)
{
    int64_t kept = 0;
    uint64_t state = 1;
    while (kept < n && kept < most && *weight < share) {
        mmi_candidate *part = c + kept;
        double likelier;
        choose_pivot(part, n - kept, &state);
        int64_t count = split(part, n - kept, p, &likelier);
        if (kept + count >= most || *weight + likelier >= share) {
            n = kept + count; /* what is sought is among them */
        } else {
            kept += count + 1;
            *weight += likelier + probability(part[count], p);
        }
    }
    return kept;
}

/* What a draw looks at. */
typedef struct choice {
    const mmi_kernels *k;
    const float *logits; /* [V] */
    float most;          /* the largest of them */
    float temperature;
    float *p; /* [V], as they are likely, but the likeliest is 1 and they weigh `sum` together */
    double sum;
    int64_t V;
    mmi_candidate *candidates; /* [V] */
    int32_t *at;               /* [V] */
} choice;

/* Logits are sorted into bins by the upper bits of how far they lie below the largest, in temperatures: 32 bins for
 * each power of two from 2^-11 to 2^7. The first one has all that lie closer, the last one all others. */
#define BIN_SHIFT 18
#define FIRST_BIN ((127 - 11) << (23 - BIN_SHIFT))
#define LAST_BIN ((127 + 7) << (23 - BIN_SHIFT))
#define BINS (LAST_BIN - FIRST_BIN + 1)

static float least_in(const choice *c, int32_t bin)
{
    if (bin >= BINS - 1)
        return -INFINITY;
    uint32_t bits = ((uint32_t)(bin + FIRST_BIN + 1) << BIN_SHIFT) - 1;
    float below;
    memcpy(&below, &bits, sizeof bits);
    /* the product is exact, so that no compiler makes two different limits of one bin */
    const double limit = (double)c->most - (double)below * (double)c->temperature;
    return limit < -(double)FLT_MAX ? -INFINITY : (float)limit;
}

static float largest_in(const choice *c, int32_t bin)
{
    return bin > 0 ? nextafterf(least_in(c, bin - 1), -INFINITY) : INFINITY;
}

/* Tokens whose x is in [low, high] become candidates; how many, or more than `most`. */
static int64_t take(const choice *c, const float *x, float low, float high, int64_t most)
{
    int64_t n = c->k->find(c->at, x, low, high, c->V, most);
    for (int64_t i = 0; i < n && n <= most; i++)
        c->candidates[i] = candidate(c->logits[c->at[i]], c->at[i]);
    return n;
}

/* Those in bins [first, last]. One copy of the code is enough. */
static __attribute__((noinline)) int64_t take_bins(const choice *c, int32_t first, int32_t last)
{
    return take(c, c->logits, least_in(c, last), largest_in(c, first), c->V);
}

/* Tokens that a bin is looked for among. */
typedef struct weighed {
    const float *logits, *p; /* [n] */
    int64_t n;
} weighed;

/* The bin of the last one among the likeliest `most`, and among as few as weigh `share`; the last bin where there are
 * not so many. *weight: of all before it. It is looked for from `guess` on, in steps of `step` that double, and then by
 * halving. */
static int32_t last_bin_of(const choice *c, weighed w, int64_t most, double share, int32_t guess, int32_t step,
                           double *weight)
{
    int32_t before = -1, bin = BINS - 1, next = guess;
    *weight = 0;
    for (; bin - before > 1; step *= 2) {
        int32_t at = next > before && next < bin ? next : (before + bin) / 2;
        int64_t count;
        double sum = c->k->weigh_from(w.p, w.logits, least_in(c, at), w.n, &count);
        if (count >= most || sum >= share) {
            bin = at;
            next = at - step;
        } else {
            before = at;
            *weight = sum;
            next = at + step;
        }
    }
    return bin;
}

#define EVERY 16 /* so many tokens one is asked where the bin will be */

/* The same among all tokens, V or fewer of which are wanted: it holds some. To weigh them all ten times took a third of
 * a draw: some of them say about where. */
static int32_t last_bin(const choice *c, int64_t most, double share, double *weight)
{
    int64_t n = c->V / EVERY, count;
    float *logits = (float *)(void *)c->candidates, *p = logits + n; /* which nothing else wants yet */
    for (int64_t i = 0; i < n; i++) {
        logits[i] = c->logits[i * EVERY];
        p[i] = c->p[i * EVERY];
    }
    weighed some = { logits, p, n }, all = { c->logits, c->p, c->V };
    double part = c->k->weigh_from(p, logits, -INFINITY, n, &count) / c->sum;
    int32_t guess = last_bin_of(c, some, most / EVERY + 1, share * part, BINS / 2, BINS, weight);
    return last_bin_of(c, all, most, share, guess, 1, weight);
}

/* Where few tokens have most of the weight, those that top-p keeps are among them: all that weigh less than half a
 * token's share of what it leaves out don't come to what it leaves out. So: how many are kept, or 0, too many to say.
 */
static int64_t keep_among_few(const choice *c, float top_p)
{
    const float least = (float)c->sum * (1 - top_p) / (2 * (float)c->V);
    double weight = 0, share = (double)top_p * c->sum;
    int64_t n = take(c, c->p, least, INFINITY, c->V / 16);
    if (n > c->V / 16)
        return 0;
    n = likeliest(c->candidates, n, c->p, n, share, &weight);
    return weight >= share ? n : 0;
}

/* The likeliest that weigh `share` become the first candidates; how many. */
static int64_t keep_among_many(const choice *c, double share)
{
    double weight;
    int32_t bin = last_bin(c, c->V, share, &weight);
    int64_t n = take_bins(c, bin, bin);
    return likeliest(c->candidates, n, c->p, n, share, &weight);
}

/* The last of those that top-k and top-p keep. */
static int64_t last_kept(const choice *c, const mm_sampling *s)
{
    double weight;
    int64_t n;
    if (s->top_k > 0 && s->top_k < c->V) {
        n = take_bins(c, 0, last_bin(c, s->top_k, INFINITY, &weight));
        weight = 0;
        n = likeliest(c->candidates, n, c->p, s->top_k, INFINITY, &weight);
        if (s->top_p < 1) {
            double share = s->top_p * weight;
            weight = 0;
            n = likeliest(c->candidates, n, c->p, n, share, &weight);
        }
    } else {
        n = keep_among_few(c, s->top_p);
        if (n == 0)
            n = keep_among_many(c, (double)s->top_p * c->sum);
    }
    return (uint32_t)~c->candidates[n - 1];
}

/* What is not kept loses what it weighs. What the others weigh. */
static double keep(const choice *c, const mm_sampling *s)
{
    bool all = s->top_p == 1 && (s->top_k == 0 || s->top_k >= c->V);
    int64_t last = all ? c->V - 1 : last_kept(c, s), begin = last + 1;
    float least = all ? -INFINITY : c->logits[last];
    /* of equal ones the lower ids come first; the likeliest weighs 1, so min-p is itself a weight */
    return c->k->keep_from(c->p, c->logits, least, s->min_p, begin) +
           c->k->keep_from(c->p + begin, c->logits + begin, nextafterf(least, INFINITY), s->min_p, c->V - begin);
}

#define LANES 8 /* so that no step waits for the one before */

static double weight_of(const float *p, int64_t n)
{
    double weight[LANES] = { 0 };
    for (int64_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++)
            weight[j] += (double)p[i + j];
    for (int j = 1; j < LANES; j++)
        weight[0] += weight[j];
    return weight[0];
}

#define STRIDE (32 * LANES) /* tokens that are passed together */

/* The token at `left` of what all weigh, in the order of their ids. */
static int32_t walk(const float *p, int64_t V, double left)
{
    int64_t i = 0;
    for (; i + STRIDE <= V; i += STRIDE) {
        double weight = weight_of(p + i, STRIDE);
        if (left < weight)
            break;
        left -= weight;
    }
    int64_t id = i > 0 ? i - 1 : 0;
    while (id > 0 && !(p[id] > 0)) /* the last possible one, should rounding leave something */
        id--;
    for (; i < V && left >= 0; i++) {
        id = p[i] > 0 ? i : id;
        left -= (double)p[i];
    }
    return (int32_t)id;
}

static void penalize(float *logits, int64_t V, const unsigned char *seen, float penalty)
{
    for (int64_t i = 0; i < V; i++)
        if (seen[i])
            logits[i] = logits[i] > 0 ? logits[i] / penalty : logits[i] * penalty;
}

int32_t mmi_sample(const mmi_kernels *k, const float *logits, int64_t V, const mm_sampling *s,
                   const unsigned char *seen, double uniform, float *work, mmi_candidate *candidates, float *logprob)
{
    choice c = { .k = k, .logits = logits, .temperature = s->temperature, .p = work + V, .V = V };
    c.candidates = candidates;
    c.at = (int32_t *)(void *)(candidates + V);
    c.most = k->largest(logits, V);
    c.sum = k->softmax_weights(c.p, logits, c.most, 1, V);
    const double lse = c.most + log(c.sum);
    if (!isfinite(lse))
        return -1;
    const bool penalized = s->repetition_penalty != 1;
    if (penalized) {
        memcpy(work, logits, (size_t)V * sizeof *work);
        penalize(work, V, seen, s->repetition_penalty);
        c.logits = work;
        c.most = k->largest(work, V);
        if (!isfinite(c.most))
            return -1;
    }
    int32_t id;
    if (s->temperature > 0) {
        if (penalized || s->temperature != 1) /* less than 2^-128 is taken for that */
            c.sum = k->softmax_weights(c.p, c.logits, c.most, fminf(1 / s->temperature, FLT_MAX), V);
        double weight = keep(&c, s);
        id = walk(c.p, V, uniform * weight);
    } else {
        id = argmax(k, c.logits, V, c.most, c.at);
    }
    *logprob = (float)(logits[id] - lse);
    return id;
}
