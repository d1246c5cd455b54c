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
#include <stdio.h>

#include "common.h"

static char *teacher = "full_sft", *teacher_cache, *write_cache;
static double alpha = 0.5, temperature = 1.5, top_k = 32, nothing, text;
static const option_row own[] = {
    { "from-student-weight", TEXT, &o.from_weight, "NAME  of the model that learns, or its directory" },
    { "from-teacher-weight", TEXT, &teacher, "NAME  of the model that teaches, or its directory" },
    { "alpha", REAL, &alpha, "X     share of the cross-entropy, from 0 to 1" },
    { "temperature", REAL, &temperature, "X     of both distributions" },
    { "write-cache", TEXT, &write_cache, "FILE  write down the teacher's likeliest tokens, and stop" },
    { "top-k", COUNT, &top_k, "N     how many of them at each place" },
    { "teacher-cache", TEXT, &teacher_cache, "FILE  learn from such a file instead of the teacher" },
    { "text", FLAG, &text, "      rows are texts, not conversations" },
    { "student-hidden-size", COUNT, &nothing, NULL },
    { "student-num-layers", COUNT, &nothing, NULL },
    { "teacher-hidden-size", COUNT, &nothing, NULL },
    { "teacher-num-layers", COUNT, &nothing, NULL },
    { "use-moe", SWITCH, &nothing, NULL }, /* the models' directories know */
    { NULL, 0, NULL, NULL },
};

int main(int argc, char **argv)
{
    o.data_path = "dataset/sft_mini_512.jsonl";
    o.from_weight = "full_sft";
    o.save_weight = "full_dist";
    o.epochs = 6;
    o.learning_rate = 5e-6;
    o.max_seq_len = 340;
    read_options(argc, argv, "Teach a small model what a large one knows.", own);

    mm_tokenizer *tokenizer = load_tokenizer();
    int32_t kind = text > 0 ? MM_ROW_TEXT : MM_ROW_CHAT;
    mm_loader *loader = make_loader(o.data_path, tokenizer, kind, MM_ROWS_PAD3);
    if (write_cache) {
        mm_model *wise = load_model(teacher);
        check(mm_distill_cache_write(wise, loader, (int32_t)top_k, (int32_t)o.threads, write_cache));
        printf("what the teacher says is in %s\n", write_cache);
        mm_model_free(wise);
    } else {
        mm_model *model = load_model(o.from_weight);
        mm_trainer_options options = trainer_options(tokenizer, kind, MM_ROWS_PAD3);
        mm_distill_options distill = MM_DISTILL_OPTIONS_INIT;
        distill.alpha = alpha;
        distill.temperature = temperature;
        options.stage = MM_STAGE_DISTILL;
        options.distill = &distill;
        options.teacher = teacher_cache ? NULL : load_model(teacher);
        options.teacher_cache = teacher_cache;
        train(model, loader, tokenizer, &options);
        mm_model_free(options.teacher);
        mm_model_free(model);
    }
    mm_loader_free(loader);
    mm_tokenizer_free(tokenizer);
    return written(0);
}
