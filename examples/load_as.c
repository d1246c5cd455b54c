#include "load_as.h"

#include "options.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* -1: there is none of that name. */
static int32_t dtype_of(const char *name)
{
    static const char *const names[] = { "f32", "bf16", "q8_0", "q4_0" };
    static const int32_t dtypes[] = { MM_F32, MM_BF16, MM_Q8_0, MM_Q4_0 };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return dtypes[i];
    return -1;
}

mm_status turn_into(const char *name, const mm_model *model, mm_model **out)
{
    const int32_t dtype = dtype_of(name);
    if (dtype < 0)
        return mm_set_last_error(MM_ERR_ARG, "--dtype is f32, bf16, q8_0 or q4_0");
    return name[0] == 'q' ? mm_model_quantize(model, dtype, out) : mm_model_cast(model, dtype, out);
}

/* Who names a file may have one of PyTorch's. */
static mm_status load(const char *directory, const mm_load_options *options, mm_model **out)
{
    char message[4200];
    mm_status status = mm_model_load(directory, options, out);
    FILE *file = status == MM_ERR_IO ? fopen(directory, "rb") : NULL;
    if (!file)
        return status;
    bool readable = fgetc(file) != EOF; /* a directory opens, and is no file to be read */
    fclose(file);
    if (!readable)
        return status;
    snprintf(message, sizeof message, "%s is a file: a model is a directory, and convert makes one of a .pth or a GGUF", directory);
    return mm_set_last_error(MM_ERR_IO, message);
}

mm_status load_as(const char *directory, const char *dtype, mm_model **out)
{
    mm_load_options as_stored = MM_LOAD_OPTIONS_INIT;
    as_stored.keep_dtype = 1;
    if (!dtype)
        return load(directory, &as_stored, out);
    mm_model *stored = NULL;
    if (dtype_of(dtype) < 0) /* rather now than behind the loading */
        return turn_into(dtype, NULL, out);
    as_stored.map = 1; /* what is turned over is not kept, so it need not be copied first */
    mm_status status = load(directory, &as_stored, &stored);
    as_stored.map = 0;
    if (status == MM_ERR_UNSUPPORTED) /* a file that can't be mapped, perhaps */
        status = load(directory, &as_stored, &stored);
    if (status == MM_OK)
        status = turn_into(dtype, stored, out);
    mm_model_free(stored);
    return status;
}

int32_t compute_for(const mm_model *model)
{
    mm_view norm; /* no matrix: to look at one in blocks would leave a copy of it */
    return mm_model_find(model, "model.norm.weight", &norm) == MM_OK && norm.dtype == MM_BF16 ? MM_BF16 : MM_F32;
}

int32_t bos_of(const mm_model *model)
{
    int64_t id = -1;
    check(mm_config_get_int(mm_model_config(model), "bos_token_id", &id));
    if (id < 0)
        fail("this model has no bos token for --", "bos");
    return (int32_t)id;
}

int32_t eos_of(const mm_model *model, const mm_tokenizer *tokenizer)
{
    int64_t id = -1;
    check(mm_config_get_int(mm_model_config(model), "eos_token_id", &id));
    return id < 0 && tokenizer ? mm_tokenizer_find(tokenizer, "<|im_end|>") : (int32_t)id;
}

int32_t positions_of(const mm_model *model)
{
    int64_t positions = 0;
    check(mm_config_get_int(mm_model_config(model), "max_position_embeddings", &positions));
    return (int32_t)(positions < INT32_MAX ? positions : INT32_MAX);
}

int32_t new_tokens_of(const mm_model *model, int32_t prompt_length, double wanted, int32_t usual)
{
    int32_t positions = positions_of(model), left = positions - prompt_length;
    char message[160];
    if (isnan(wanted))
        wanted = left < 1 ? 1 : left < usual ? left : usual;
    snprintf(message, sizeof message,
             "the model has %d positions, too few for a prompt of %d tokens and --max-new-tokens %.0f", positions,
             prompt_length, wanted);
    if (wanted > left)
        fail(message, "");
    return (int32_t)wanted;
}
