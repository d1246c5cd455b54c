/* params: what a model costs before anything is built.
 *
 *     params                                               the default model
 *     params --preset minimind2 --preset minimind-3-moe    two models side by side
 *     params --config out/model num_hidden_layers=12       a saved config, with a change
 *
 * A config is named, typed fields; what was not set follows from the rest, so hidden_size=640 alone makes a whole model.
 * Counting walks the very list of tensors that a model of that config would have, and the memory is the plan by which it
 * would run: both are exact, and neither allocates anything. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

#define MODELS_MOST 6

/* What is shown below the parameters; 0 where the library can count a model, but not run it. */
enum { RUN_BYTES, TRAIN_BYTES, FLOPS, FIGURES };
static const struct {
    const char *label, *json;
} figures[FIGURES] = {
    { "bytes to run 512 tokens", "memory_to_run" },
    { "bytes to train on 8 x 512", "memory_to_train" },
    { "operations per token, forward", "forward_flops_per_token" },
};

typedef struct subject {
    const char *name;
    mm_config *config;
    mm_param_count count;
    double figures[FIGURES];
} subject;

/* The modules that parameters are counted by, then their sum, and what one token uses of it. */
#define PART(field) { #field, offsetof(mm_param_count, field) }
static const struct {
    const char *name;
    size_t offset;
} parts[] = {
    PART(embedding),          PART(attention),   PART(mlp_dense),   PART(moe_router), PART(moe_experts),
    PART(moe_shared_experts), PART(moe_scalars), PART(layer_norms), PART(final_norm), PART(lm_head),
    PART(total),              PART(active),
};
enum { MODULES = 10, PARTS = 12 };

static long long part(const subject *s, int p)
{
    return *(const int64_t *)((const char *)&s->count + parts[p].offset);
}

static void fail_at(const char *argument, const char *what)
{
    fprintf(stderr, "%s: %s %s; see --help\n", program, argument, what);
    exit(EXIT_FAILURE);
}

static int help(void)
{
    show_usage("[--preset NAME | --config FILE] [KEY=VALUE...] [--json]\n\n"
               "Count the parameters of a model, and say what it takes to run and to train it;\n"
               "several models side by side.\n"
               "\n"
               "  --preset NAME  a known model; minimind2-small when nothing is said\n"
               "  --config FILE  a config.json, or a directory with one\n"
               "  KEY=VALUE      set a key of the model named before; without a VALUE: unset it\n"
               "  --json         print one JSON object for each model\n"
               "  --list         print the presets' names\n"
               "  --help         show this");
    return written(EXIT_SUCCESS);
}

/* KEY=VALUE: the look of the value says which setter it is for, and the library says what the key takes. */
static void set(mm_config *config, const char *setting)
{
    char key[128] = "", *end = NULL;
    const char *value = strchr(setting, '=') + 1;
    snprintf(key, sizeof key, "%.*s", (int)(value - setting - 1), setting);
    errno = 0;
    long long whole = strtoll(value, &end, 10);
    if (*value == '\0')
        check(mm_config_unset(config, key));
    else if (*end == '\0' && errno == 0)
        check(mm_config_set_int(config, key, whole));
    else if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)
        check(mm_config_set_bool(config, key, strcmp(value, "true") == 0));
    else if (strtod(value, &end), *end == '\0')
        check(mm_config_set_float(config, key, strtod(value, NULL)));
    else
        check(mm_config_set_string(config, key, value));
}

static void measure(subject *s)
{
    mm_workload work = MM_WORKLOAD_INIT; /* one sequence of 512 tokens */
    mm_memory memory = MM_MEMORY_INIT;
    mm_flops flops = MM_FLOPS_INIT;
    mm_param_count_init(&s->count, sizeof s->count);
    check(mm_count_params(s->config, &s->count));
    if (mm_estimate_memory(s->config, &work, &memory) == MM_OK)
        s->figures[RUN_BYTES] = (double)memory.total;
    if (mm_estimate_flops(s->config, &work, &flops) == MM_OK)
        s->figures[FLOPS] = flops.forward;
    work.mode = MM_TRAIN;
    work.max_batch = 8;
    work.optimizer = 1;
    if (mm_estimate_memory(s->config, &work, &memory) == MM_OK)
        s->figures[TRAIN_BYTES] = (double)memory.total;
    mm_config_free(s->config);
}

/* 25829888 as "25.8 M". */
static void print_readable(double number)
{
    char text[32] = "-";
    size_t unit = 0;
    for (; number >= 1000 && unit < 4; unit++)
        number /= 1000;
    if (number > 0)
        snprintf(text, sizeof text, "%.1f %c", number, " kMGT"[unit]);
    printf(" %23s", text);
}

static void print_table(const subject *subjects, int n)
{
    printf("%-30s", "parameters");
    for (int i = 0; i < n; i++)
        printf(" %23s", subjects[i].name);
    for (int p = 0; p < PARTS; p++) {
        printf(p < MODULES ? "\n  %-28s" : "\n%-30s", parts[p].name);
        for (int i = 0; i < n; i++)
            printf(" %15lld %5.1f %%", part(&subjects[i], p),
                   100.0 * (double)part(&subjects[i], p) / (double)subjects[i].count.total);
    }
    for (int f = 0; f < FIGURES; f++) {
        printf("\n%-30s", figures[f].label);
        for (int i = 0; i < n; i++)
            print_readable(subjects[i].figures[f]);
    }
    putchar('\n');
}

static void print_json(const subject *s)
{
    printf("{\"name\": \"");
    for (const char *c = s->name; *c; c++)
        printf(*c == '"' || *c == '\\' ? "\\%c" : (unsigned char)*c < ' ' ? "\\u%04x" : "%c", *c);
    printf("\", \"total\": %lld, \"active\": %lld", (long long)s->count.total, (long long)s->count.active);
    for (int f = 0; f < FIGURES; f++)
        printf(", \"%s\": %.0f", figures[f].json, s->figures[f]);
    for (int p = 0; p < MODULES; p++)
        printf("%s\"%s\": %lld", p ? ", " : ", \"breakdown\": {", parts[p].name, part(s, p));
    puts("}}");
}

int main(int argc, char **argv)
{
    start_as(argv);
    static subject subjects[MODELS_MOST];
    bool json = false;
    int n = 0;
    subjects[0].name = mm_preset_name(0); /* unless another one is named */
    check(mm_config_create(NULL, &subjects[0].config));
    for (int i = 1; i < argc; i++) {
        bool is_file = strcmp(argv[i], "--config") == 0;
        if (is_file || strcmp(argv[i], "--preset") == 0) {
            if (i + 1 == argc || n == MODELS_MOST)
                fail_at(argv[i], n == MODELS_MOST ? "is one model too many" : "lacks its value");
            mm_config_free(subjects[n].config);
            subjects[n].name = argv[++i];
            check((is_file ? mm_config_load : mm_config_create)(argv[i], &subjects[n++].config));
        } else if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--list") == 0) {
            for (int32_t p = 0; p < mm_preset_count(); p++)
                puts(mm_preset_name(p));
            return written(EXIT_SUCCESS);
        } else if (strcmp(argv[i], "--help") == 0) {
            return help();
        } else if (argv[i][0] != '-' && strchr(argv[i], '=')) {
            n = n > 0 ? n : 1;
            set(subjects[n - 1].config, argv[i]);
        } else {
            fail_at(argv[i], "is not understood here");
        }
    }
    n = n > 0 ? n : 1;
    for (int i = 0; i < n; i++) {
        measure(&subjects[i]);
        if (json)
            print_json(&subjects[i]);
    }
    if (!json)
        print_table(subjects, n);
    return written(EXIT_SUCCESS);
}
