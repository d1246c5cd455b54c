/* What learns: trainers of every stage, adapters, and what is asked and told on the way. */
#include <stdio.h>

#include "deeds.h"

/* Steps on the rows of a file and their checkpoint, which another trainer goes on from. */
static mm_status train_and_resume(const char *name, mm_loader_options rows, mm_trainer_options options)
{
    char path[600], output[600];
    mm_model *model = NULL;
    mm_tokenizer *tokenizer = NULL;
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_trainer *trainer = NULL, *again = NULL;
    rows.workers = 1;
    options.output = output, options.max_steps = 1, options.threads = 2, options.kernels = DEEDS_KERNELS;
    snprintf(path, sizeof path, "%s/%s", deeds_directory, name);
    snprintf(output, sizeof output, "%s/run-%s", deeds_directory, name);
    mm_status status = mm_dataset_open(path, &dataset);
    if (status == MM_OK)
        status = deeds_load_tokenizer(&tokenizer);
    if (status == MM_OK)
        status = mm_model_load(deeds_directory, NULL, &model);
    if (status == MM_OK)
        status = mm_loader_create(dataset, tokenizer, &rows, &loader);
    if (status == MM_OK)
        status = mm_trainer_create(model, loader, tokenizer, &options, &trainer);
    if (status == MM_OK)
        status = mm_trainer_run(trainer);
    mm_trainer_free(trainer);
    mm_model_free(model);
    model = NULL;
    if (status == MM_OK)
        status = mm_model_load(deeds_directory, NULL, &model);
    if (status == MM_OK)
        status = mm_trainer_create(model, loader, tokenizer, &options, &again);
    if (status == MM_OK)
        status = mm_trainer_resume(again, output);
    mm_trainer_free(again);
    mm_loader_free(loader);
    mm_model_free(model);
    mm_tokenizer_free(tokenizer);
    mm_dataset_free(dataset);
    return status;
}

mm_status training_with_checkpoints(void)
{
    mm_loader_options rows = MM_LOADER_OPTIONS_INIT;
    mm_trainer_options options = MM_TRAINER_OPTIONS_INIT;
    rows.batch = 1, rows.max_length = 8;
    return train_and_resume("rows.jsonl", rows, options);
}

static int32_t reward_length(void *user, const mm_answer *answer, double *reward)
{
    (void)user;
    *reward = (double)answer->text_length;
    return 0;
}

/* The checkpoint stands between two steps on the same answers. */
mm_status learning_from_rewards(void)
{
    mm_loader_options rows = MM_LOADER_OPTIONS_INIT;
    mm_trainer_options options = MM_TRAINER_OPTIONS_INIT;
    mm_policy_training policy = MM_POLICY_TRAINING_INIT;
    rows.batch = 1, rows.max_length = 8, rows.kind = MM_ROW_PROMPT, rows.template_name = "minillm";
    policy.reward = reward_length, policy.variant = MM_POLICY_PPO, policy.group = 2, policy.max_new_tokens = 3;
    policy.updates = 2;
    options.stage = MM_STAGE_POLICY, options.policy = &policy, options.accumulation_steps = 1;
    return train_and_resume("prompts.jsonl", rows, options);
}

mm_status learning_from_preferences(void)
{
    mm_loader_options rows = MM_LOADER_OPTIONS_INIT;
    mm_trainer_options options = MM_TRAINER_OPTIONS_INIT;
    rows.batch = 1, rows.max_length = 32, rows.kind = MM_ROW_PREFERENCE, rows.template_name = "minillm";
    options.stage = MM_STAGE_DPO, options.accumulation_steps = 1;
    return train_and_resume("pairs.jsonl", rows, options);
}

mm_status learning_from_a_teacher(void)
{
    mm_model *teacher = NULL;
    mm_loader_options rows = MM_LOADER_OPTIONS_INIT;
    mm_trainer_options options = MM_TRAINER_OPTIONS_INIT;
    mm_status status = mm_model_load(deeds_directory, NULL, &teacher);
    rows.batch = 1, rows.max_length = 8;
    options.stage = MM_STAGE_DISTILL, options.teacher = teacher, options.accumulation_steps = 1;
    if (status == MM_OK)
        status = train_and_resume("rows.jsonl", rows, options);
    mm_model_free(teacher);
    return status;
}

/* The file is written for the rows that are then read again. */
mm_status learning_from_a_file(void)
{
    char path[600], file[600];
    mm_model *model = NULL;
    mm_tokenizer *tokenizer = NULL;
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_trainer *trainer = NULL;
    mm_loader_options rows = MM_LOADER_OPTIONS_INIT;
    mm_trainer_options options = MM_TRAINER_OPTIONS_INIT;
    rows.batch = 2, rows.max_length = 8, rows.workers = 0;
    options.stage = MM_STAGE_DISTILL, options.teacher_cache = file, options.max_steps = 1;
    options.threads = 2, options.kernels = DEEDS_KERNELS;
    snprintf(path, sizeof path, "%s/rows.jsonl", deeds_directory);
    snprintf(file, sizeof file, "%s/teacher", deeds_directory);
    mm_status status = mm_dataset_open(path, &dataset);
    if (status == MM_OK)
        status = deeds_load_tokenizer(&tokenizer);
    if (status == MM_OK)
        status = mm_model_load(deeds_directory, NULL, &model);
    if (status == MM_OK)
        status = mm_loader_create(dataset, tokenizer, &rows, &loader);
    if (status == MM_OK)
        status = mm_distill_cache_write(model, loader, 2, 1, file);
    if (status == MM_OK)
        status = mm_trainer_create(model, loader, tokenizer, &options, &trainer);
    if (status == MM_OK)
        status = mm_trainer_run(trainer);
    mm_trainer_free(trainer);
    mm_loader_free(loader);
    mm_model_free(model);
    mm_tokenizer_free(tokenizer);
    mm_dataset_free(dataset);
    return status;
}

/* A step on an adapter alone. */
static mm_status step_adapter(mm_model *model, mm_adapter *adapter)
{
    const int32_t ids[4] = { 1, 2, 3, 4 };
    mm_context *context = NULL;
    mm_optimizer *optimizer = NULL;
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    mm_batch batch = MM_BATCH_INIT;
    mm_output output = MM_OUTPUT_INIT;
    mm_step how = MM_STEP_INIT;
    options.mode = MM_TRAIN, options.max_length = 4, options.threads = 2;
    options.adapter = adapter, options.kernels = DEEDS_KERNELS;
    batch.ids = batch.targets = ids, batch.batch = 1, batch.length = 4, batch.mode = MM_TRAIN;
    mm_status status = mm_context_create(model, &options, &context);
    if (status == MM_OK)
        status = mm_forward(context, &batch, &output);
    if (status == MM_OK)
        status = mm_backward(context, NULL);
    if (status == MM_OK)
        status = mm_adamw_create_adapter(adapter, NULL, &optimizer);
    if (status == MM_OK)
        status = mm_optimizer_step(optimizer, context, &how);
    if (status == MM_OK)
        status = mm_context_set_adapters(context, NULL, NULL, 0);
    if (status == MM_OK)
        status = mm_context_set_adapters(context, &adapter, NULL, 1);
    mm_optimizer_free(optimizer);
    mm_context_free(context);
    return status;
}

/* Made, trained, saved, loaded and taken into the model's weights. */
mm_status training_an_adapter(void)
{
    char path[600];
    mm_model *model = NULL, *merged = NULL;
    mm_adapter *adapter = NULL, *again = NULL;
    snprintf(path, sizeof path, "%s/adapter", deeds_directory);
    mm_status status = mm_model_load(deeds_directory, NULL, &model);
    if (status == MM_OK)
        status = mm_adapter_create(model, NULL, &adapter);
    if (status == MM_OK)
        status = step_adapter(model, adapter);
    if (status == MM_OK)
        status = mm_adapter_save(adapter, path);
    if (status == MM_OK)
        status = mm_adapter_load(model, path, &again);
    if (status == MM_OK)
        status = mm_adapter_merge(model, &again, NULL, 1, &merged);
    mm_model_free(merged);
    mm_adapter_free(again);
    mm_adapter_free(adapter);
    mm_model_free(model);
    return status;
}

static mm_status open_rows(const char *name, mm_dataset **out)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", deeds_directory, name);
    return mm_dataset_open(path, out);
}

static mm_status evaluate_rows(mm_context *context, mm_tokenizer *tokenizer)
{
    mm_dataset *texts = NULL, *questions = NULL, *answers = NULL;
    mm_loader *loader = NULL;
    mm_loader_options rows = MM_LOADER_OPTIONS_INIT;
    mm_prompts_options prompts = MM_PROMPTS_OPTIONS_INIT;
    mm_evaluation loss = MM_EVALUATION_INIT;
    mm_choices_result share = MM_CHOICES_RESULT_INIT;
    mm_prompts_result passed = MM_PROMPTS_RESULT_INIT;
    rows.batch = 1, rows.max_length = 8, rows.workers = 0;
    prompts.template_name = "minillm", prompts.max_new_tokens = 2;
    mm_status status = open_rows("rows.jsonl", &texts);
    if (status == MM_OK)
        status = open_rows("questions.jsonl", &questions);
    if (status == MM_OK)
        status = open_rows("answers.jsonl", &answers);
    if (status == MM_OK)
        status = mm_loader_create(texts, tokenizer, &rows, &loader);
    if (status == MM_OK)
        status = mm_evaluate_loss(context, loader, 0, &loss);
    if (status == MM_OK)
        status = mm_evaluate_choices(context, tokenizer, questions, NULL, &share);
    if (status == MM_OK)
        status = mm_evaluate_prompts(context, tokenizer, answers, &prompts, &passed);
    mm_loader_free(loader);
    mm_dataset_free(answers);
    mm_dataset_free(questions);
    mm_dataset_free(texts);
    return status;
}

/* A context that evaluates, for the model of the directory. */
static mm_status make_context(mm_model **model, mm_context **context)
{
    mm_context_options options = MM_CONTEXT_OPTIONS_INIT;
    options.max_length = 8, options.max_context = 64, options.threads = 2, options.kernels = DEEDS_KERNELS;
    options.outputs = MM_OUT_LOSS | MM_OUT_LOGPROBS | MM_OUT_LAST_LOGITS;
    mm_status status = mm_model_load(deeds_directory, NULL, model);
    return status == MM_OK ? mm_context_create(*model, &options, context) : status;
}

mm_status evaluating(void)
{
    static const char text[] = "some text that is longer than the context";
    mm_model *model = NULL;
    mm_context *context = NULL;
    mm_tokenizer *tokenizer = NULL;
    mm_evaluation loss = MM_EVALUATION_INIT;
    mm_status status = make_context(&model, &context);
    if (status == MM_OK)
        status = deeds_load_tokenizer(&tokenizer);
    if (status == MM_OK)
        status = mm_evaluate_text(context, tokenizer, text, sizeof text - 1, NULL, &loss);
    if (status == MM_OK)
        status = evaluate_rows(context, tokenizer);
    mm_tokenizer_free(tokenizer);
    mm_context_free(context);
    mm_model_free(model);
    return status;
}

static mm_status tell(mm_report *report, mm_context *context, const mm_tokenizer *tokenizer)
{
    static const char *const names[] = { "loss", "validation_loss" };
    static const char *const prompts[] = { "a" };
    const double values[] = { 1.5, 2.5 };
    mm_train_progress progress = MM_TRAIN_PROGRESS_INIT;
    mm_samples_options samples = MM_SAMPLES_OPTIONS_INIT;
    samples.prompts = prompts, samples.count = 1, samples.max_new_tokens = 2;
    mm_status status = mm_report_fact(report, "Parameters", "few");
    if (status == MM_OK)
        status = mm_report_scalars(report, 1, names, values, 2);
    if (status == MM_OK)
        status = mm_report_vector(report, 2, "expert_load", values, 2);
    if (status == MM_OK)
        status = mm_report_text(report, 3, "Once", "upon", 4);
    if (status == MM_OK)
        status = mm_report_progress(report, &progress);
    if (status == MM_OK)
        status = mm_report_samples(report, 4, context, tokenizer, &samples);
    return status == MM_OK ? mm_report_flush(report) : status;
}

/* Written, opened again and gone on with. */
mm_status reporting(void)
{
    char path[600];
    mm_model *model = NULL;
    mm_context *context = NULL;
    mm_tokenizer *tokenizer = NULL;
    mm_report *report = NULL, *again = NULL;
    mm_report_options anew = MM_REPORT_OPTIONS_INIT;
    anew.resume_step = -1;
    snprintf(path, sizeof path, "%s/report", deeds_directory);
    mm_status status = make_context(&model, &context);
    if (status == MM_OK)
        status = deeds_load_tokenizer(&tokenizer);
    if (status == MM_OK)
        status = mm_report_create(path, &anew, &report);
    if (status == MM_OK)
        status = tell(report, context, tokenizer);
    mm_report_free(report);
    if (status == MM_OK)
        status = mm_report_create(path, NULL, &again);
    if (status == MM_OK)
        status = mm_report_flush(again);
    mm_report_free(again);
    mm_tokenizer_free(tokenizer);
    mm_context_free(context);
    mm_model_free(model);
    return status;
}
