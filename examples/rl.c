/* rl: let a model answer questions, reward the right answers, and watch it get better.
 *
 *     rl                                                     sums of two digits, from nothing, in a minute or two
 *     rl --algorithm ppo --steps 200                         the same by PPO with a value head
 *     rl --model DIR --data-path gsm8k_train.jsonl --batch 2 --max-length 512 --max-new-tokens 256
 *        --learning-rate 1e-6                            a chat model of one's own, rows {"question", "answer"}
 *
 * Begin reading at main(). Without --model it first makes one that has read sums of which every other is wrong: it
 * knows how to answer, and is right about as often as its teachers. Then it is asked, each question several times;
 * reward() looks at the answers, and the trainer makes those that earned more than the others likelier. */
#include <math.h>
#include <minimind.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void fail(const char *what, const char *which)
{
    fprintf(stderr, "rl: %s%s\n", what, which);
    exit(EXIT_FAILURE);
}

static void check(mm_status status)
{
    if (status != MM_OK)
        fail(mm_last_error(), "");
}

/* --- Options: --name value, each with its default --- */

static struct {
    const char *algorithm, *model, *data_path, *work_dir, *template_name;
    double steps, batch, group, max_new_tokens, max_length, learning_rate, beta, updates, temperature, seed, threads;
    double lessons, min_chars, max_chars, repetition;
} o = { "grpo", NULL, NULL, "rl-out", NULL, 100, 8, 8, 4, 32, 1e-3, 0.02, 1, 1, 42, 0, 1500, 0, 0, 0 };

static const struct {
    const char *name, *help;
    const char **text;
    double *number;
} table[] = {
    { "--algorithm", "grpo, cispo or ppo (grpo)", &o.algorithm, NULL },
    { "--model", "a model's directory to begin from (none: a small one is made)", &o.model, NULL },
    { "--data-path", "rows {\"question\", \"answer\"} or {\"conversations\"} (none: sums)", &o.data_path, NULL },
    { "--template", "how a question is put: minimind2, minimind3, minillm (the tokenizer's)", &o.template_name, NULL },
    { "--work-dir", "checkpoints and what is made come here (rl-out)", &o.work_dir, NULL },
    { "--steps", "(100)", NULL, &o.steps },
    { "--batch", "questions a step (8)", NULL, &o.batch },
    { "--group", "answers to each question (8)", NULL, &o.group },
    { "--max-new-tokens", "of an answer (4)", NULL, &o.max_new_tokens },
    { "--max-length", "of a question, in tokens (32)", NULL, &o.max_length },
    { "--learning-rate", "(1e-3)", NULL, &o.learning_rate },
    { "--beta", "how much staying near the reference counts (0.02)", NULL, &o.beta },
    { "--updates", "steps that learn from the same answers (1)", NULL, &o.updates },
    { "--temperature", "of the draw (1)", NULL, &o.temperature },
    { "--lessons", "steps of reading sums before (1500)", NULL, &o.lessons },
    { "--min-chars", "half a reward more for an answer from so long, half a reward less for others (0: no matter)",
      NULL, &o.min_chars },
    { "--max-chars", "to so long; MiniMind has 20 and 800", NULL, &o.max_chars },
    { "--repetition", "1: less for saying the same again, as MiniMind has it (0)", NULL, &o.repetition },
    { "--seed", "(42)", NULL, &o.seed },
    { "--threads", "0 for one per processor (0)", NULL, &o.threads },
};
#define OPTION_COUNT (sizeof table / sizeof *table)

static void help(void)
{
    puts("usage: rl [OPTION VALUE]...\n\nLearn from rewards.\n");
    for (size_t k = 0; k < OPTION_COUNT; k++)
        printf("  %-17s %s\n", table[k].name, table[k].help);
    exit(EXIT_SUCCESS);
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        size_t k = 0;
        while (k < OPTION_COUNT && strcmp(argv[i], table[k].name) != 0)
            k++;
        if (strcmp(argv[i], "--help") == 0)
            help();
        if (k == OPTION_COUNT)
            fail("no such option, --help lists them: ", argv[i]);
        char *end = "";
        if (i + 1 == argc)
            fail("this option needs a value: ", argv[i]);
        if (table[k].text)
            *table[k].text = argv[i + 1];
        else
            *table[k].number = strtod(argv[i + 1], &end);
        if (*end || (table[k].number && !(*table[k].number >= 0 && *table[k].number < 1e9)))
            fail("this option needs a number from 0 up: ", argv[i]);
    }
}

/* --- The reward --- */

/* The last number of a text, "1,234" as 1234; NAN if there is none. GSM8K's references are numbers, too. */
static double last_number(const char *text)
{
    char digits[32];
    double found = NAN;
    while (*text) {
        size_t n = 0;
        const char *from = text;
        for (; n < sizeof digits - 1 && (strchr("0123456789.,", *text) || (n == 0 && *text == '-')) && *text; text++)
            if (*text != ',')
                digits[n++] = *text;
        digits[n] = '\0';
        if (strpbrk(digits, "0123456789"))
            found = strtod(digits, NULL);
        text += text == from;
    }
    return found;
}

static double characters(const char *text)
{
    double n = 0;
    for (; *text; text++)
        n += (*text & 0xC0) != 0x80; /* bytes that go on a character of UTF-8 don't count */
    return n;
}

/* What an answer earns: 1 for the right number, and what the options ask for beside it. */
static int32_t reward(void *user, const mm_answer *answer, double *earned)
{
    (void)user;
    double share = 0, length = characters(answer->text);
    *earned = answer->reference && last_number(answer->text) == last_number(answer->reference);
    if (o.max_chars > 0)
        *earned += length >= o.min_chars && length <= o.max_chars ? 0.5 : -0.5;
    if (o.repetition > 0 && mm_reward_repetition(&share, answer->ids, answer->count, 3) == MM_OK)
        *earned -= share < 0.5 ? share : 0.5;
    return 0;
}

/* --- A model that has read sums --- */

/* One line a sum; of the lessons every other is wrong. */
static void write_sums(const char *path, int lessons)
{
    FILE *file = fopen(path, "w");
    if (!file)
        fail("can't write ", path);
    for (int i = 0; i < (lessons ? 2 : 1) * 100; i++) {
        int a = i / 10 % 10, b = i % 10, sum = i < 100 ? a + b : (a * 7 + b * 3) % 19;
        fprintf(file,
                "{\"conversations\": [{\"role\": \"user\", \"content\": \"%d+%d=\"}, "
                "{\"role\": \"assistant\", \"content\": \"%d\"}]}\n",
                a, b, sum);
    }
    if (fclose(file) != 0)
        fail("can't write ", path);
}

/* What conversations are written with, so that it becomes few tokens. */
static int32_t next_text(void *user, const char **text, size_t *length)
{
    static const char frame[] = "system\nYou are a helpful assistant\nuser\nassistant\n";
    int *left = user;
    *text = frame;
    *length = sizeof frame - 1;
    return (*left)-- > 0;
}

static mm_loader *make_loader(const char *path, mm_tokenizer *tokenizer, int32_t kind, double batch, double length)
{
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_loader_options l = MM_LOADER_OPTIONS_INIT;
    l.kind = kind;
    l.batch = (int32_t)batch;
    l.max_length = (int32_t)length;
    l.template_name = o.template_name;
    l.seed = (uint64_t)o.seed;
    check(mm_dataset_open(path, &dataset));
    check(mm_loader_create(dataset, tokenizer, &l, &loader));
    mm_dataset_free(dataset); /* the loader keeps it */
    return loader;
}

/* A tokenizer and a model of their own, that have read the lessons. */
static void make_model(mm_tokenizer **tokenizer, mm_model **model)
{
    char path[4096];
    int texts = 4;
    mm_tokenizer_train_options t = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    mm_trainer_options s = MM_TRAINER_OPTIONS_INIT;
    mm_config *config = NULL;
    mm_trainer *trainer = NULL;
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    o.template_name = "minimind2";
    t.next_text = next_text;
    t.user = &texts;
    t.vocab_size = 300;
    check(mm_tokenizer_train(&t, tokenizer));
    check(mm_config_create("minimind2-small", &config));
    check(mm_config_set_int(config, "vocab_size", mm_tokenizer_vocab_size(*tokenizer)));
    check(mm_config_set_int(config, "hidden_size", 64));
    check(mm_config_set_int(config, "num_hidden_layers", 3));
    check(mm_config_set_int(config, "max_position_embeddings", 128));
    check(mm_model_create(config, (uint64_t)o.seed, model));
    mm_config_free(config);

    snprintf(path, sizeof path, "%s/lessons.jsonl", o.work_dir);
    write_sums(path, 1);
    mm_loader *loader = make_loader(path, *tokenizer, MM_ROW_CHAT, 32, 28);
    s.learning_rate = 3e-3;
    s.accumulation_steps = 1;
    s.epochs = 1000;
    s.max_steps = (int64_t)o.lessons;
    s.threads = (int32_t)o.threads;
    check(mm_trainer_create(*model, loader, *tokenizer, &s, &trainer));
    check(mm_trainer_run(trainer));
    check(mm_trainer_progress(trainer, &p));
    printf("%lld lessons read, loss %.3f\n", (long long)p.step, p.loss);
    mm_trainer_free(trainer);
    mm_loader_free(loader);
    snprintf(path, sizeof path, "%s/lessons", o.work_dir); /* --model to try something else from here */
    check(mm_model_save(*model, path));
    check(mm_tokenizer_save(*tokenizer, path));
}

/* --- Learning from rewards --- */

static double metric(const mm_train_progress *p, const char *name)
{
    for (int64_t i = 0; i < p->metric_count; i++)
        if (strcmp(p->metrics[i].name, name) == 0)
            return p->metrics[i].value;
    return NAN;
}

static int32_t show(void *user, const mm_train_progress *p)
{
    double *means = user, tenth = ceil((double)p->total_steps / 10); /* of the rewards in the first and last tenth */
    if ((double)p->step <= tenth)
        means[0] += metric(p, "reward") / tenth;
    if ((double)p->step > (double)p->total_steps - tenth)
        means[1] += metric(p, "reward") / tenth;
    if (p->step % 10 == 0)
        printf("step %lld/%lld  reward %.3f  kl %.4f  clipped %.3f  answers of %.1f tokens, %.0f%% ended  value loss "
               "%.4f\n",
               (long long)p->step, (long long)p->total_steps, metric(p, "reward"), metric(p, "kl"),
               metric(p, "clipped"), metric(p, "answer_length"), 100 * metric(p, "stopped"), metric(p, "value_loss"));
    fflush(stdout);
    return 0;
}

static int32_t variant(void)
{
    static const char *const names[] = {
        [MM_POLICY_GRPO] = "grpo", [MM_POLICY_CISPO] = "cispo", [MM_POLICY_PPO] = "ppo"
    };
    for (int32_t i = 0; i < 3; i++)
        if (strcmp(o.algorithm, names[i]) == 0)
            return i;
    fail("--algorithm must be grpo, cispo or ppo, not ", o.algorithm);
    return -1;
}

static void learn(mm_model *model, mm_loader *questions, mm_tokenizer *tokenizer, int32_t algorithm)
{
    double means[2] = { 0, 0 };
    mm_policy_training policy = MM_POLICY_TRAINING_INIT;
    policy.reward = reward;
    policy.variant = algorithm;
    policy.group = (int32_t)o.group;
    policy.max_new_tokens = (int32_t)o.max_new_tokens;
    policy.temperature = (float)o.temperature;
    policy.beta = o.beta;
    policy.updates = (int32_t)o.updates;

    mm_trainer *trainer = NULL;
    mm_trainer_options t = MM_TRAINER_OPTIONS_INIT;
    t.stage = MM_STAGE_POLICY;
    t.policy = &policy;
    t.output = o.work_dir;
    t.on_step = show;
    t.user = means;
    t.learning_rate = o.learning_rate;
    t.weight_decay = 0;
    t.accumulation_steps = 1;
    t.epochs = 100000; /* until the steps are done */
    t.max_steps = (int64_t)o.steps;
    t.threads = (int32_t)o.threads;
    check(mm_trainer_create(model, questions, tokenizer, &t, &trainer));
    check(mm_trainer_run(trainer));
    mm_trainer_free(trainer);
    printf("mean reward: %.3f in the first tenth of the steps, %.3f in the last\n", means[0], means[1]);
}

int main(int argc, char **argv)
{
    char path[4096];
    mm_tokenizer *tokenizer = NULL;
    mm_model *model = NULL;
    read_options(argc, argv);
    int32_t algorithm = variant();
    mkdir(o.work_dir, 0777); /* if it is there already, all the better */
    snprintf(path, sizeof path, "%s/sums.jsonl", o.work_dir);
    if (o.model) {
        check(mm_tokenizer_load(o.model, &tokenizer));
        check(mm_model_load(o.model, NULL, &model));
    } else {
        make_model(&tokenizer, &model);
    }
    if (!o.data_path)
        write_sums(path, 0);
    mm_loader *questions =
        make_loader(o.data_path ? o.data_path : path, tokenizer, MM_ROW_PROMPT, o.batch, o.max_length);
    learn(model, questions, tokenizer, algorithm);
    mm_loader_free(questions);

    snprintf(path, sizeof path, "%s/model", o.work_dir);
    check(mm_model_save(model, path));
    check(mm_tokenizer_save(tokenizer, path));
    printf("the model is in %s\n", path);
    mm_model_free(model);
    mm_tokenizer_free(tokenizer);
    return EXIT_SUCCESS;
}
