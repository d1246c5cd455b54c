#include "run/sampling.h"

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
        return fail_range("temperature", s->temperature, "0 or more");
    if (!(s->top_p > 0 && s->top_p <= 1))
        return fail_range("top_p", s->top_p, "above 0 and at most 1");
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return fail_range("min_p", s->min_p, "from 0 to 1");
    if (!(s->repetition_penalty > 0) || isinf(s->repetition_penalty))
        return fail_range("repetition_penalty", s->repetition_penalty, "above 0");
    if (s->top_k < 0)
        return fail_range("top_k", (double)s->top_k, "0 or more");
    return MM_OK;
}

#define LANES 8 /* so that no step waits for the one before */

/* Logits are no NaN: mmi_sample() has looked. */
static int32_t argmax(const float *logits, int64_t V)
{
    float most[LANES];
    int64_t i = 0;
    for (int j = 0; j < LANES; j++)
        most[j] = logits[0];
    for (; i + LANES <= V; i += LANES)
        for (int j = 0; j < LANES; j++)
            most[j] = logits[i + j] > most[j] ? logits[i + j] : most[j];
    for (; i < V; i++)
        most[0] = logits[i] > most[0] ? logits[i] : most[0];
    for (int j = 1; j < LANES; j++)
        most[0] = most[j] > most[0] ? most[j] : most[0];
    for (i = 0; logits[i] != most[0]; i++) {}
    return (int32_t)i;
}

static mmi_candidate candidate(float logit, int64_t id)
{
    uint32_t bits, sign = UINT32_C(1) << 31;
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

static mmi_candidate median(mmi_candidate a, mmi_candidate b, mmi_candidate c)
{
    return (a > b) == (b > c) ? b : (b > a) == (a > c) ? a : c;
}

/* The likeliest of c [n] move to its front: at most `most`, in no order, and as few as weigh `share` with the *weight
 * of others, to which they are added. How many. */
static int64_t likeliest(mmi_candidate *c, int64_t n, const float *p, int64_t most, double share, double *weight)
{
    int64_t kept = 0;
    while (kept < n && kept < most && *weight < share) {
        mmi_candidate *part = c + kept;
        int64_t left = n - kept, last = left - 1, middle = left / 2;
        mmi_candidate pivot = median(part[0], part[middle], part[last]);
        swap(part, part + (pivot == part[middle] ? middle : pivot == part[last] ? last : 0));
        double likelier;
        int64_t count = split(part, left, p, &likelier);
        if (kept + count >= most || *weight + likelier >= share) {
            n = kept + count; /* what is sought is among them */
        } else {
            kept += count + 1;
            *weight += likelier + probability(part[count], p);
        }
    }
    return kept;
}

/* Logits, none above 0, are sorted into bins by the upper bits of their magnitude: 32 bins for each power of two from
 * 2^-11 to 2^7. The first one has all that lie closer to 0, the last one all others. */
#define BIN_SHIFT 18
#define FIRST_BIN ((127 - 11) << (23 - BIN_SHIFT))
#define LAST_BIN ((127 + 7) << (23 - BIN_SHIFT))
#define BINS (LAST_BIN - FIRST_BIN + 1)

static int32_t bin_of(float logit)
{
    uint32_t bits;
    memcpy(&bits, &logit, sizeof bits);
    int32_t bin = (int32_t)((bits & 0x7FFFFFFF) >> BIN_SHIFT);
    bin = bin < FIRST_BIN ? FIRST_BIN : bin;
    return (bin > LAST_BIN ? LAST_BIN : bin) - FIRST_BIN;
}

/* The bin of the last one among the likeliest `most`, and among as few as weigh `share`. *weight: of all before it. */
static int32_t last_bin(const float *logits, const float *p, int64_t V, int64_t most, double share, double *weight)
{
    double weights[BINS] = { 0 };
    int64_t counts[BINS] = { 0 }, count = 0;
    for (int64_t i = 0; i < V; i++) {
        int32_t at = bin_of(logits[i]);
        weights[at] += (double)p[i];
        counts[at]++;
    }
    int32_t bin = 0; /* has the likeliest: it is never empty */
    *weight = 0;
    for (int32_t next = 1; next < BINS && count + counts[bin] < most && *weight + weights[bin] < share; next++)
        if (counts[next] > 0) {
            count += counts[bin];
            *weight += weights[bin];
            bin = next;
        }
    return bin;
}

/* The logits in bins [first, last]; how many. */
static int64_t find(mmi_candidate *candidates, const float *logits, int64_t V, int32_t first, int32_t last)
{
    int64_t n = 0;
    for (int64_t i = 0; i < V; i++) {
        int32_t bin = bin_of(logits[i]);
        candidates[n] = candidate(logits[i], i);
        n += bin >= first && bin <= last;
    }
    return n;
}

#define TOGETHER 32 /* tokens of which mostly none is likely */

/* Those of probability `least` or more; how many, or -1: more than `most`. */
static int64_t find_likely(mmi_candidate *candidates, const float *logits, const float *p, int64_t V, float least,
                           int64_t most)
{
    int64_t n = 0;
    for (int64_t i = 0; i < V; i += TOGETHER) {
        const int64_t end = i + TOGETHER < V ? i + TOGETHER : V;
        int any = 0;
        for (int64_t j = i; j < end; j++)
            any |= p[j] >= least;
        for (int64_t j = i; j < end && any; j++) {
            candidates[n] = candidate(logits[j], j);
            n += p[j] >= least;
        }
        if (n > most)
            return -1;
    }
    return n;
}

/* Where few tokens have most of the weight, those that top-p keeps are among them: all that weigh less than half a
 * token's share of what it leaves out don't come to what it leaves out. So: how many are kept, or 0, too many to say.
 */
static int64_t keep_among_few(const float *logits, const float *p, int64_t V, float top_p, mmi_candidate *candidates)
{
    const float least = (1 - top_p) / (2 * (float)V);
    double weight = 0;
    int64_t n = find_likely(candidates, logits, p, V, least, V / 16);
    n = n > 0 ? likeliest(candidates, n, p, n, top_p, &weight) : 0;
    return weight >= top_p ? n : 0;
}

static mmi_candidate least_of(const mmi_candidate *c, int64_t n)
{
    mmi_candidate least = c[0];
    for (int64_t i = 1; i < n; i++)
        least = c[i] < least ? c[i] : least;
    return least;
}

/* The last of those that top-k and top-p keep. */
static int64_t last_kept(const float *logits, const float *p, int64_t V, const mm_sampling *s,
                         mmi_candidate *candidates)
{
    double weight;
    int64_t n;
    if (s->top_k > 0 && s->top_k < V) {
        n = find(candidates, logits, V, 0, last_bin(logits, p, V, s->top_k, INFINITY, &weight));
        weight = 0;
        n = likeliest(candidates, n, p, s->top_k, INFINITY, &weight);
        if (s->top_p < 1) {
            double share = s->top_p * weight;
            weight = 0;
            n = likeliest(candidates, n, p, n, share, &weight);
        }
    } else { /* together they weigh 1 */
        n = keep_among_few(logits, p, V, s->top_p, candidates);
        if (n == 0) {
            int32_t bin = last_bin(logits, p, V, V, s->top_p, &weight);
            n = find(candidates, logits, V, bin, bin);
            n = likeliest(candidates, n, p, n, s->top_p, &weight);
        }
    }
    return (uint32_t)~least_of(candidates, n);
}

/* Logits below `least`, and probabilities below `least_p`, lose theirs; what is left is added to `weight`. */
static void keep_from(const float *logits, float *p, int64_t n, float least, float least_p, double weight[LANES])
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            p[i + j] = ((logits[i + j] >= least) & (p[i + j] >= least_p)) ? p[i + j] : 0; /* without branches */
            weight[j] += (double)p[i + j];
        }
    for (; i < n; i++) {
        p[i] = logits[i] >= least && p[i] >= least_p ? p[i] : 0;
        weight[0] += (double)p[i];
    }
}

/* p [V], the probabilities of the logits, of which the likeliest is `top`: what is not kept loses its own. What the
 * others weigh. */
static double keep(const float *logits, float *p, int64_t V, const mm_sampling *s, int32_t top,
                   mmi_candidate *candidates)
{
    bool all = s->top_p == 1 && (s->top_k == 0 || s->top_k >= V);
    int64_t last = all ? V - 1 : last_kept(logits, p, V, s, candidates), begin = last + 1;
    float least = all ? -INFINITY : logits[last];
    double wanted_p = (double)s->min_p * (double)p[top], weight[LANES] = { 0 };
    float least_p = (float)wanted_p;
    if ((double)least_p < wanted_p)
        least_p = nextafterf(least_p, INFINITY);
    keep_from(logits, p, begin, least, least_p, weight); /* of equal ones the lower ids come first */
    keep_from(logits + begin, p + begin, V - begin, nextafterf(least, INFINITY), least_p, weight);
    for (int j = 1; j < LANES; j++)
        weight[0] += weight[j];
    return weight[0];
}

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

#define STRIDE (8 * LANES) /* tokens that are passed together */

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

/* Divide by the temperature what each logit lies below the likeliest: no temperature is then too small. False: the
 * penalty took the likeliest beyond a float. */
static bool heat(float *logits, int64_t V, int32_t top, float temperature)
{
    float most = logits[top];
    for (int64_t i = 0; i < V; i++)
        logits[i] = (logits[i] - most) / temperature + 0.0f; /* no -0, which would come after 0 */
    return isfinite(most);
}

int32_t mmi_sample(const mmi_kernels *k, const float *logits, int64_t V, const mm_sampling *s,
                   const unsigned char *seen, double uniform, float *work, mmi_candidate *candidates, float *logprob)
{
    float lse = k->logsumexp(logits, V), *p = work + V;
    if (!isfinite(lse))
        return -1;
    memcpy(work, logits, (size_t)V * sizeof(float));
    if (s->repetition_penalty != 1)
        penalize(work, V, seen, s->repetition_penalty);
    int32_t id = argmax(work, V);
    if (s->temperature > 0) {
        if (!heat(work, V, id, s->temperature))
            return -1;
        memcpy(p, work, (size_t)V * sizeof(float));
        k->softmax_scaled(p, k->logsumexp(work, V), 1, V);
        double weight = keep(work, p, V, s, id, candidates);
        id = walk(p, V, uniform * weight);
    }
    *logprob = logits[id] - lse;
    return id;
}
