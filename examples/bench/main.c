/* How fast this library is on this machine, beside what the machine could do.
 *
 *     bench train   --preset minimind2-small --batch-size 8 --max-seq-len 512 --threads 2
 *     bench decode  --dtype q8_0 --json
 *     bench train   --data-path rows.jsonl --tokenizer DIR        on text, packed, instead of random ids
 *
 * Every figure is the median of --repeat runs, and what it is compared with is measured in turn with it. docs/performance.md
 * tells what each means. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

const char *program = "bench";

static const struct program {
    const char *name;
    void (*run)(const options *o);
    const char *does;
} programs[] = {
    { "train", bench_train, "steps of training, beside cblas_sgemm on the same shapes" },
    { "prefill", bench_prefill, "--max-seq-len ids in one call, the last logits" },
    { "decode", bench_decode, "--new-tokens single ids, logits each, from an empty cache or behind --past tokens" },
    { "batch", bench_batch, "--sequences generated together, beside one alone" },
    { "kernels", bench_kernels, "train, prefill and decode on every kernel path" },
    { "scaling", bench_scaling, "train, prefill and decode with one to --threads threads" },
    { "start", bench_start, "from a file on disk to the first token" },
    { "attention", bench_attention, "one layer's training at lengths up to --max-seq-len (8192)" },
};
#define PROGRAMS (sizeof programs / sizeof *programs)

static int written(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "%s: can't write standard output\n", program);
    return 1;
}

static int usage_text(FILE *to)
{
    fprintf(to, "usage: %s WHAT [options]\n", program);
    for (size_t i = 0; i < PROGRAMS; i++)
        fprintf(to, "  %-20s%s\n", programs[i].name, programs[i].does);
    fprintf(to, "options:\n"
                "  --preset NAME       what to run (minimind2-small)\n"
                "  --batch-size N      rows of a training batch (8)\n"
                "  --max-seq-len N     tokens per row, and of a prefill (512)\n"
                "  --new-tokens N      tokens to decode (128)\n"
                "  --past N            decode: tokens in the cache before those (none)\n"
                "  --sequences N       generated together, at most 1024 (16)\n"
                "  --dtype NAME        of the weights in inference: f32, bf16, q8_0 or q4_0 (f32)\n"
                "  --compute NAME      what products round their operands to: f32, bf16 or f16 (bf16 where weights\n"
                "                      are, else f32)\n"
                "  --cache-dtype NAME  of keys and values: f32, bf16 or q8_0 (f32)\n"
                "  --threads N         (2)\n"
                "  --repeat N          counted runs, 1 to %d (5)\n"
                "  --kernels NAME      a kernel path, such as avx2 (the fastest here)\n"
                "  --of WHAT           kernels, scaling: only train, prefill or decode\n"
                "  --data-path FILE    train: JSON lines with a text each, packed; needs --tokenizer\n"
                "  --tokenizer DIR     train: the tokenizer for them\n"
                "  --processor-time    count what the processor spends, not the clock: for one thread on a busy machine\n"
                "  --json              one JSON object per measurement and line\n",
            MOST_RUNS);
    return to == stdout ? written() : 1;
}

/* A cache takes the first three of what weights are stored in. */
static const int32_t stored[] = { MM_F32, MM_BF16, MM_Q8_0, MM_Q4_0 }, computed[] = { MM_F32, MM_BF16, MM_F16 };

static int32_t read_dtype(const char *option, const char *name, const int32_t *known, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(name, mm_dtype_name(known[i])) == 0)
            return known[i];
    fprintf(stderr, "%s: %s is \"%s\", allowed are", program, option, name);
    for (int i = 0; i < count; i++)
        fprintf(stderr, " %s", mm_dtype_name(known[i]));
    fprintf(stderr, "\n");
    exit(1);
}

static int positive(const char *option, const char *text, int most)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < 1 || value > most) {
        fprintf(stderr, "%s: %s is \"%s\", must be from 1 to %d\n", program, option, text, most);
        exit(1);
    }
    return (int)value;
}

static const struct option names[] = {
    { "preset", required_argument, NULL, 'p' },      { "batch-size", required_argument, NULL, 'b' },
    { "max-seq-len", required_argument, NULL, 'l' }, { "new-tokens", required_argument, NULL, 'n' },
    { "sequences", required_argument, NULL, 's' },   { "dtype", required_argument, NULL, 'w' },
    { "cache-dtype", required_argument, NULL, 'c' }, { "threads", required_argument, NULL, 't' },
    { "repeat", required_argument, NULL, 'r' },      { "kernels", required_argument, NULL, 'k' },
    { "of", required_argument, NULL, 'o' },          { "data-path", required_argument, NULL, 'd' },
    { "tokenizer", required_argument, NULL, 'z' },   { "processor-time", no_argument, NULL, 'x' },
    { "json", no_argument, NULL, 'j' },              { "compute", required_argument, NULL, 'm' },
    { "past", required_argument, NULL, 'a' },
    { "help", no_argument, NULL, 'h' },              { NULL, 0, NULL, 0 }
};

/* The programs that an option is for; NULL: all. Of kernels and scaling it is for what they are --of, too. */
static const char *programs_with(int option)
{
    switch (option) {
    case 'b':
    case 'd':
    case 'z': return "train, kernels and scaling";
    case 'l': return "train, prefill, kernels, scaling and attention";
    case 'n': return "decode, batch, kernels and scaling";
    case 'a': return "decode";
    case 's': return "batch";
    case 'w': return "prefill, decode, batch, start, kernels and scaling";
    case 'c': return "prefill, decode, batch, kernels and scaling";
    case 'o': return "kernels and scaling";
    case 'k': return "train, prefill, decode, batch, scaling, start and attention";
    default: return NULL;
    }
}

/* `given` is by the letters of `names`. */
static void expect_programs_with(const bool *given, const options *o)
{
    for (const struct option *option = names; option->name; option++) {
        const char *those = given[option->val] ? programs_with(option->val) : NULL, *other = NULL;
        if (those && !strstr(those, o->what))
            other = o->what;
        else if (those && o->of && option->val != 'o' && !strstr(those, o->of))
            other = o->of;
        if (!other)
            continue;
        fprintf(stderr, "%s: --%s is for %s, not for %s\n", program, option->name, those, other);
        exit(1);
    }
}

/* One option; false for those that there are not. */
static bool take_option(options *o, int c)
{
    switch (c) {
    case 'p': o->preset = optarg; return true;
    case 'b': o->batch = positive("--batch-size", optarg, 4096); return true;
    case 'l': o->length = positive("--max-seq-len", optarg, 1 << 20); return true;
    case 'n': o->new_tokens = positive("--new-tokens", optarg, 1 << 20); return true;
    case 'a': o->past = positive("--past", optarg, 1 << 20); return true;
    case 's': o->sequences = positive("--sequences", optarg, 1024); return true;
    case 'w': o->dtype = read_dtype("--dtype", optarg, stored, 4); return true;
    case 'm': o->compute = read_dtype("--compute", optarg, computed, 3); return true;
    case 'c': o->cache_dtype = read_dtype("--cache-dtype", optarg, stored, 3); return true;
    case 't': o->threads = positive("--threads", optarg, 1024); return true;
    case 'r': o->repeat = positive("--repeat", optarg, MOST_RUNS); return true;
    case 'k': o->kernels = optarg; return true;
    case 'o': o->of = optarg; return true;
    case 'd': o->data = optarg; return true;
    case 'z': o->tokenizer = optarg; return true;
    case 'x': o->processor_time = true; return true;
    case 'j': o->json = true; return true;
    default: return false;
    }
}

int main(int argc, char **argv)
{
    options o = { .preset = "minimind2-small",
                  .batch = 8,
                  .threads = 2,
                  .repeat = 5,
                  .new_tokens = 128,
                  .sequences = 16,
                  .compute = AS_WEIGHTS };
    if (argc > 0)
        program = argv[0] = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    bool given[128] = { false };
    for (int c; (c = getopt_long(argc, argv, "h", names, NULL)) != -1; given[c] = true)
        if (!take_option(&o, c))
            return usage_text(c == 'h' ? stdout : stderr);
    o.what = optind + 1 == argc ? argv[optind] : "";
    if (o.length == 0)
        o.length = strcmp(o.what, "attention") == 0 ? 8192 : 512;
    if (o.processor_time && o.threads != 1) {
        fprintf(stderr, "%s: --processor-time needs --threads 1\n", program);
        return 1;
    }
    if (o.processor_time)
        use_processor_time();
    if (!o.data != !o.tokenizer) {
        fprintf(stderr, "%s: --data-path and --tokenizer go together\n", program);
        return 1;
    }
    if (o.of && (!open_named(o.of) || strcmp(o.of, "batch") == 0)) {
        fprintf(stderr, "%s: --of is \"%s\", allowed are train, prefill and decode\n", program, o.of);
        return 1;
    }
    for (size_t i = 0; i < PROGRAMS; i++)
        if (strcmp(programs[i].name, o.what) == 0) {
            expect_programs_with(given, &o);
            programs[i].run(&o);
            return written();
        }
    return usage_text(stderr);
}
