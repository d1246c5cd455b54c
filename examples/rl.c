/* rl: let a model answer questions, reward the right answers, and watch it get better.
 *
 *     rl                                                     sums of two digits, from nothing, in less than a minute
 *     rl --algorithm ppo --steps 200                         the same by PPO with a value head
 *     rl --model DIR --data-path gsm8k_train.jsonl --batch 2 --max-length 512 --max-new-tokens 256
 *        --learning-rate 1e-6                            a chat model of one's own, rows {"question", "answer"}
 *
 * Begin reading at main(). Without --model it first makes one that has read sums of which every other is wrong: it
 * knows how to answer, and is right about as often as its teachers. Then it is asked, each question several times;
 * reward() looks at the answers, and the trainer makes those that earned more than the others likelier. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

static char *algorithm = "grpo";
static double group = 8, max_new_tokens = 4, beta = 0.02, updates = 1, temperature = 1;
static double lessons = 1500, min_chars, max_chars, repetition, epochs;
static const option_row own[] = {
    { "algorithm", TEXT, &algorithm, "NAME  grpo, cispo or ppo" },
    { "model", TEXT, &o.from_weight,
      "DIR   a model to begin from, or its NAME in SAVE_DIR; none: a small one is made" },
    { "work-dir", TEXT, &o.save_dir, "DIR   the model comes to DIR/model, checkpoints and report to DIR/model.run" },
    { "steps", COUNT, &o.max_steps, "N     stop after so many steps" },
    { "batch", COUNT, &o.batch_size, "N     questions a step" },
    { "max-length", COUNT, &o.max_seq_len, "N     of a question, in tokens" },
    { "group", COUNT, &group, "N     answers to each question" },
    { "max-new-tokens", COUNT, &max_new_tokens, "N     of an answer" },
    { "beta", REAL, &beta, "X     how much staying near the reference counts" },
    { "updates", COUNT, &updates, "N     steps that learn from the same answers" },
    { "temperature", REAL, &temperature, "X     of the draw" },
    { "lessons", COUNT, &lessons, "N     steps of reading sums before, 0: none" },
    { "min-chars", COUNT, &min_chars,
      "N     half a reward more for an answer from so long, half a reward less for others" },
    { "max-chars", COUNT, &max_chars, "N     to so long; MiniMind has 20 and 800, 0: no matter" },
    { "repetition", SWITCH, &repetition, "0|1   1: less for saying the same again, as MiniMind has it" },
    { "epochs", COUNT, &epochs, NULL }, /* as many as the steps take */
    /* What the trainer refuses, since rewards are measured at every step, is taken for its message, but not offered. */
    { "validation-path", TEXT, &o.validation_path, NULL },
    { "eval-interval", COUNT, &o.eval_interval, NULL },
    { "patience", COUNT, &o.patience, NULL },
    { "strip-empty-think", FLAG, &o.strip_empty_think, NULL }, /* of the lessons; prompts keep theirs */
    { NULL, 0, NULL, NULL },
};

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
    if (max_chars > 0)
        *earned += length >= min_chars && length <= max_chars ? 0.5 : -0.5;
    if (repetition > 0 && mm_reward_repetition(&share, answer->ids, answer->count, 3) == MM_OK)
        *earned -= share < 0.5 ? share : 0.5;
    return 0;
}

/* --- A model that has read sums --- */

/* NAME.jsonl of the work directory, one line a sum; of the lessons every other is wrong. Other ranks may share the
 * directory and read theirs already, which is the same: so the file gets its name when it is whole. */
static void write_sums(char path[4096], const char *name, int wrong)
{
    char own[4096];
    snprintf(own, sizeof own, "%s/%s.XXXXXX", o.save_dir, name);
    snprintf(path, sizeof own, "%s/%s.jsonl", o.save_dir, name);
    int fd = mkstemp(own);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file)
        fail("can't write ", own);
    for (int i = 0; i < (wrong ? 2 : 1) * 100; i++) {
        int a = i / 10 % 10, b = i % 10, sum = i < 100 ? a + b : (a * 7 + b * 3) % 19;
        fprintf(file,
                "{\"conversations\": [{\"role\": \"user\", \"content\": \"%d+%d=\"}, "
                "{\"role\": \"assistant\", \"content\": \"%d\"}]}\n",
                a, b, sum);
    }
    if (fclose(file) != 0 || rename(own, path) != 0)
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

/* A tokenizer and a model of their own, that knows nothing yet. */
static void make_model(mm_tokenizer **tokenizer, mm_model **model)
{
    int texts = 4;
    mm_tokenizer_train_options t = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    mm_config *config = NULL;
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
}

static void read_lessons(mm_model *model, mm_tokenizer *tokenizer)
{
    char path[4096];
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_trainer *trainer = NULL;
    mm_loader_options l = MM_LOADER_OPTIONS_INIT;
    mm_trainer_options s = MM_TRAINER_OPTIONS_INIT;
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    write_sums(path, "lessons", 1);
    l.kind = MM_ROW_CHAT;
    l.batch = 32;
    l.max_length = 28;
    l.template_name = o.template_name;
    l.seed = (uint64_t)o.seed;
    check(mm_dataset_open(path, &dataset));
    check(mm_loader_create(dataset, tokenizer, &l, &loader));
    s.learning_rate = 3e-3;
    s.accumulation_steps = 1;
    s.max_steps = (int64_t)lessons;
    s.epochs = (int64_t)ceil(lessons * l.batch / (double)mm_dataset_rows(dataset)); /* as many as these take */
    s.threads = small("threads", o.threads);
    check(mm_trainer_create(model, loader, tokenizer, &s, &trainer));
    check(mm_trainer_run(trainer));
    check(mm_trainer_progress(trainer, &p));
    printf("%lld lessons read, loss %.3f\n", (long long)p.step, p.loss);
    mm_trainer_free(trainer);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
}

/* To try something else from here with --model. */
static void keep(const mm_model *model, const mm_tokenizer *tokenizer)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/lessons", o.save_dir);
    check(mm_model_save(model, path));
    check(mm_tokenizer_save(tokenizer, path));
}

/* --- Learning from rewards --- */

static double sums[2];     /* of the rewards in the first and in the last tenth of the steps */
static int64_t counted[2]; /* of these steps those that were seen: rank 0 sees them, and no run sees an earlier one's */

static void add_reward(const mm_train_progress *p)
{
    int64_t tenth = (p->total_steps + 9) / 10;
    double reward = 0;
    for (int64_t i = 0; i < p->metric_count; i++)
        if (strcmp(p->metrics[i].name, "reward") == 0)
            reward = p->metrics[i].value;
    if (p->step <= tenth)
        sums[0] += reward, counted[0]++;
    if (p->step > p->total_steps - tenth)
        sums[1] += reward, counted[1]++;
}

static void print_rewards(void)
{
    double first = sums[0] / (double)counted[0], last = sums[1] / (double)counted[1];
    if (counted[0] > 0 && counted[1] > 0)
        printf("mean reward: %.3f in the first tenth of the steps, %.3f in the last\n", first, last);
    else if (counted[0] > 0)
        printf("mean reward: %.3f in the first tenth of the steps\n", first);
    else if (counted[1] > 0)
        printf("mean reward: %.3f in the last tenth of the steps\n", last);
}

static mm_policy_training make_policy(void)
{
    static const char *const names[] = {
        [MM_POLICY_GRPO] = "grpo", [MM_POLICY_CISPO] = "cispo", [MM_POLICY_PPO] = "ppo", NULL
    };
    mm_policy_training policy = MM_POLICY_TRAINING_INIT;
    policy.reward = reward;
    policy.variant = choose("algorithm", algorithm, names);
    policy.group = small("group", group);
    policy.max_new_tokens = small("max-new-tokens", max_new_tokens);
    policy.temperature = (float)temperature;
    policy.beta = beta;
    policy.updates = small("updates", updates);
    return policy;
}

int main(int argc, char **argv)
{
    static const char *const shown[] = { "reward", "kl", "clipped", "answer_length", "stopped", NULL };
    char path[4096];
    mm_tokenizer *tokenizer = NULL;
    mm_model *model = NULL;
    o.save_dir = "rl-out";
    o.save_weight = "model";
    o.max_steps = 100;
    o.batch_size = 8;
    o.max_seq_len = 32;
    o.learning_rate = 1e-3;
    o.weight_decay = o.save_interval = 0;
    o.log_interval = 10;
    o.metrics = shown;
    o.on_step = add_reward;
    read_options(argc, argv, "Learn from rewards: sums, or the questions of --data-path.", own);
    if (o.max_steps < 1) /* elsewhere 0 is as many as the epochs have, but here these follow from the steps */
        fail("at least 1 is asked for by --", "steps");
    if (min_chars > max_chars)
        fail(max_chars > 0 ? "no answer is so long and so short: --min-chars is above --" :
                             "lengths are no matter, and --min-chars is none, without --",
             "max-chars");
    mm_policy_training policy = make_policy();

    make_directories(o.save_dir);
    if (strcmp(o.from_weight, "none") != 0) {
        tokenizer = load_tokenizer();
        model = load_model(o.from_weight);
    } else {
        make_model(&tokenizer, &model);
        if (lessons > 0) /* a run of 0 steps would be one without a limit */
            read_lessons(model, tokenizer);
        keep(model, tokenizer);
    }
    if (!o.data_path) {
        write_sums(path, "sums", 0);
        o.data_path = path;
    }
    mm_loader *questions = make_loader(o.data_path, tokenizer, MM_ROW_PROMPT, MM_ROWS_PAD);
    o.epochs = ceil(o.max_steps * o.batch_size / (double)o.rows); /* as many as the steps take */
    mm_trainer_options options = trainer_options(tokenizer, MM_ROW_PROMPT, MM_ROWS_PAD);
    options.stage = MM_STAGE_POLICY;
    options.policy = &policy;
    train(model, questions, tokenizer, &options);
    print_rewards();

    mm_loader_free(questions);
    mm_tokenizer_free(tokenizer);
    mm_model_free(model);
    return written(EXIT_SUCCESS);
}
