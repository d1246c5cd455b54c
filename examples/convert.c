/* convert: a model from one directory in another, in fewer bits or with an adapter taken into its weights.
 *
 *     convert --model out/full_sft --dtype bf16 --out half                        half the size, to run with
 *     convert --model out/full_sft --dtype q8_0 --out quarter                     a quarter, and faster
 *     convert --model out/full_sft --adapter out/lora/identity --out identity     a model that needs no adapter
 *     convert --model out/full_sft --dtype q8_0 --gguf full_sft.gguf              for llama.cpp and what is built on it
 *
 * Begin reading at main(): a model is loaded, calls that each make another one of it may follow, and what came of it is
 * saved with its tokenizer. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf.h"
#include "load_as.h"
#include "options.h"

static const char usage[] =
    "--model DIR [--adapter DIR] [--dtype NAME] (--out DIR | --gguf FILE)\n"
    "\n"
    "Save the model in DIR to another directory, or as one file of GGUF, with its tokenizer.\n"
    "\n"
    "  --model DIR    the model, which stays as it is\n"
    "  --adapter DIR  an adapter of it, to be taken into its weights\n"
    "  --dtype NAME   f32, bf16, q8_0 or q4_0: what the weights are turned into (as stored)\n"
    "  --out DIR      where it comes to; what is there is replaced\n"
    "  --gguf FILE    the file, for llama.cpp and programs that are built on it, of a MiniMind, but for\n"
    "                 MiniMind2's with experts, a llama or a qwen3\n"
    "  --help         show this";

static const char *source, *adapter_directory, *dtype, *out, *gguf;

/* Whatever the two paths look like. */
static int is_one_directory(const char *a, const char *b)
{
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static void read_arguments(int argc, char **argv)
{
    static const struct {
        const char *name, **to;
    } options[] = { { "--model", &source },
                    { "--adapter", &adapter_directory },
                    { "--dtype", &dtype },
                    { "--out", &out },
                    { "--gguf", &gguf } };
    enum { COUNT = sizeof options / sizeof *options };
    for (int i = 1; i < argc; i += 2) {
        int k = 0;
        if (strcmp(argv[i], "--help") == 0)
            show_usage(usage), exit(written(EXIT_SUCCESS));
        while (k < COUNT && strcmp(argv[i], options[k].name) != 0)
            k++;
        if (k == COUNT)
            fail("no such option, see --help: ", argv[i]);
        if (i + 1 == argc)
            fail(argv[i], " lacks its value; see --help");
        *options[k].to = argv[i + 1];
    }
    if (!source || !out == !gguf)
        fail("it takes --model, and --out or --gguf; see --help", "");
    static const char *const dtypes[] = { "f32", "bf16", "q8_0", "q4_0", NULL };
    if (dtype)
        choose("dtype", dtype, dtypes);
    if (out && is_one_directory(source, out))
        fail("--model stays as it is, so --out is another directory, not ", out);
}

/* The model with the adapter in its weights, in place of the model. */
static void merge(mm_model **model)
{
    mm_adapter *adapter = NULL;
    mm_model *merged = NULL;
    check(mm_adapter_load(*model, adapter_directory, &adapter));
    check(mm_adapter_merge(*model, &adapter, NULL, 1, &merged));
    mm_adapter_free(adapter);
    mm_model_free(*model);
    *model = merged;
}

static void cast(mm_model **model)
{
    mm_model *other = NULL;
    check(turn_into(dtype, *model, &other));
    mm_model_free(*model);
    *model = other;
}

/* A model that runs on ids alone may have none. */
static mm_tokenizer *load_tokenizer(void)
{
    char path[4096];
    mm_tokenizer *tokenizer = NULL;
    snprintf(path, sizeof path, "%s/tokenizer.json", source);
    if (access(path, F_OK) == 0)
        check(mm_tokenizer_load(source, &tokenizer));
    return tokenizer;
}

int main(int argc, char **argv)
{
    start_as(argv);
    read_arguments(argc, argv);
    mm_model *model = NULL;
    check(load_as(source, adapter_directory && dtype ? "f32" : dtype, &model)); /* an adapter adds to all the bits */
    mm_tokenizer *tokenizer = load_tokenizer();
    if (adapter_directory)
        merge(&model);
    if (adapter_directory && dtype)
        cast(&model);
    if (gguf) {
        printf("the model is in %s, as a %s\n", gguf, gguf_write(gguf, model, source, eos_of(model, tokenizer)));
    } else {
        check(mm_model_save(model, out));
        if (tokenizer)
            check(mm_tokenizer_save(tokenizer, out));
        printf("the model is in %s%s\n", out, tokenizer ? "" : ", without a tokenizer, as it was");
    }
    mm_tokenizer_free(tokenizer);
    mm_model_free(model);
    return written(EXIT_SUCCESS);
}
