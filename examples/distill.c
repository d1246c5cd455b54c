/* distill: knowledge distillation, by which a small model learns from a large one.
 *
 *     distill --data-path dataset/sft_mini_512.jsonl --from-student-weight small --from-teacher-weight full_sft
 *     distill … --write-cache teacher.safetensors --top-k 32         run the teacher once and keep what it said
 *     distill … --teacher-cache teacher.safetensors                  and learn from that, without it
 *
 * Beside the next token, the student learns the teacher's whole distribution over it: alpha times the cross-entropy,
 * plus 1 - alpha times the divergence at a temperature that lets the less likely tokens speak. The two may be of
 * different configs; their vocabulary is the same. The options are those of MiniMind's trainer/train_distillation.py.
 */
#include <math.h>
#include <stdio.h>

#include "common.h"

static char *teacher = "full_sft", *teacher_cache, *write_cache;
static double alpha = 0.5, temperature = 1.5, top_k = NAN, text;
/* The models' directories know them. */
static double student_size, student_layers, teacher_size, teacher_layers;
static double use_moe = NAN, student_moe = NAN, teacher_moe = NAN;
static const option_row own[] = {
    { "from-student-weight", TEXT, &o.from_weight, "NAME  of the model that learns, or its directory" },
    { "from-teacher-weight", TEXT, &teacher, "NAME  of the model that teaches, or its directory" },
    { "alpha", REAL, &alpha, "X     share of the cross-entropy, from 0 to 1" },
    { "temperature", REAL, &temperature, "X     of both distributions" },
    { "write-cache", TEXT, &write_cache, "FILE  write down the teacher's likeliest tokens, and stop" },
    { "top-k", COUNT, &top_k, "N     how many of them at each place (32)" },
    { "teacher-cache", TEXT, &teacher_cache, "FILE  learn from such a file instead of the teacher" },
    { "text", FLAG, &text, "      rows are texts, not conversations" },
    { "student-hidden-size", COUNT, &student_size, NULL },
    { "student-num-layers", COUNT, &student_layers, NULL },
    { "teacher-hidden-size", COUNT, &teacher_size, NULL },
    { "teacher-num-layers", COUNT, &teacher_layers, NULL },
    { "use-moe", SWITCH, &use_moe, NULL }, /* MiniMind2's; MiniMind-3 has one for each model */
    { "student-use-moe", SWITCH, &student_moe, NULL },
    { "teacher-use-moe", SWITCH, &teacher_moe, NULL },
    { NULL, 0, NULL, NULL },
};

static mm_model *load_teacher(void)
{
    mm_model *model = load_model(teacher);
    expect_shape(model, "--from-teacher-weight", teacher_size, teacher_layers, teacher_moe);
    return model;
}

/* What can't be meant, because it would change nothing. */
static void check_options(void)
{
    const char *of_student = student_size > 0   ? "student-hidden-size" :
                             student_layers > 0 ? "student-num-layers" :
                             use_moe > 0        ? "use-moe" :
                             student_moe > 0    ? "student-use-moe" :
                                                  NULL;
    const char *of_teacher = teacher_size > 0   ? "teacher-hidden-size" :
                             teacher_layers > 0 ? "teacher-num-layers" :
                             teacher_moe > 0    ? "teacher-use-moe" :
                                                  NULL;
    if (write_cache && teacher_cache)
        fail("one file is written or another one read, not both: --write-cache and --", "teacher-cache");
    if (write_cache && o.ranks.comm)
        fail("--write-cache is for one process, as a rank sees only its share of the rows; it takes no --", "comm");
    if (!isnan(top_k) && !write_cache)
        fail("only a cache that is written with --write-cache has a --", "top-k");
    if (write_cache && of_student)
        fail("--write-cache asks the teacher alone, it takes no --", of_student);
    if (teacher_cache && of_teacher)
        fail("--teacher-cache stands for the teacher, it takes no --", of_teacher);
}

int main(int argc, char **argv)
{
    o.data_path = "dataset/sft_mini_512.jsonl";
    o.from_weight = "full_sft";
    o.save_weight = "full_dist";
    o.epochs = 6;
    o.learning_rate = 5e-6;
    o.max_seq_len = 340;
    o.check = check_options;
    read_options(argc, argv, "Teach a small model what a large one knows.", own);

    mm_tokenizer *tokenizer = load_tokenizer();
    int32_t kind = text > 0 ? MM_ROW_TEXT : MM_ROW_CHAT;
    mm_loader *loader = make_loader(o.data_path, tokenizer, kind, MM_ROWS_PAD3);
    if (write_cache) {
        mm_model *wise = load_teacher();
        int32_t kept = isnan(top_k) ? 32 : small("top-k", top_k);
        check(mm_distill_cache_write(wise, loader, kept, small("threads", o.threads), write_cache));
        printf("what the teacher says is in %s\n", write_cache);
        mm_model_free(wise);
    } else {
        mm_model *model = load_model(o.from_weight);
        expect_shape(model, "--from-student-weight", student_size, student_layers,
                     isnan(student_moe) ? use_moe : student_moe);
        mm_trainer_options options = trainer_options(tokenizer, kind, MM_ROWS_PAD3);
        mm_distill_options distill = MM_DISTILL_OPTIONS_INIT;
        distill.alpha = alpha;
        distill.temperature = temperature;
        options.stage = MM_STAGE_DISTILL;
        options.distill = &distill;
        options.teacher = teacher_cache ? NULL : load_teacher();
        options.teacher_cache = teacher_cache;
        train(model, loader, tokenizer, &options);
        mm_model_free(options.teacher);
        mm_model_free(model);
    }
    mm_loader_free(loader);
    mm_tokenizer_free(tokenizer);
    return written(0);
}
