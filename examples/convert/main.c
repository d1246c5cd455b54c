/* convert: a model from one directory in another, in fewer bits or with an adapter taken into its weights; and other
 * programs' files: MiniMind's own, of PyTorch, and llama.cpp's, from there and back.
 *
 *     convert --model out/full_sft --dtype bf16 --out half                        half the size, to run with
 *     convert --model out/full_sft --dtype q8_0 --out quarter                     a quarter, and faster
 *     convert --model out/full_sft --adapter out/lora/identity --out identity     a model that needs no adapter
 *     convert --model out/full_sft --dtype q8_0 --gguf full_sft.gguf              for llama.cpp and what is built on it
 *     convert --model full_sft.gguf --out full_sft                                from there
 *     convert --model full_sft_512.pth --preset minimind2-small --tokenizer model --out minimind2-small
 *     convert --model out/full_sft --pth full_sft_512.pth                         for MiniMind's own programs
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
#include "gguf_read.h"
#include "load_as.h"
#include "options.h"
#include "pth.h"
#include "whole.h"

static const char usage[] =
    "--model PATH [--adapter PATH] [--dtype NAME] (--out DIR | --gguf FILE | --pth FILE)\n"
    "\n"
    "Save a model to another directory or as one file, with its tokenizer.\n"
    "\n"
    "  --model PATH     the model, which stays as it is: a directory; a GGUF file of a llama, a qwen3 or a\n"
    "                   qwen3moe in f32, f16, bf16, q8_0 or q4_0; or MiniMind's .pth, a pytorch_model.bin\n"
    "                   or another file of torch.save(), of which nothing is run\n"
    "  --preset NAME    the config of a file of torch.save(), one that params --list names\n"
    "  --config FILE    or the config.json for it (the one beside it)\n"
    "  --tokenizer DIR  where a tokenizer.json for the model is (beside it, or in the GGUF)\n"
    "  --adapter PATH   an adapter of it, to be taken into its weights: a directory, or the .pth of\n"
    "                   MiniMind's LoRA\n"
    "  --dtype NAME     f32, bf16, q8_0 or q4_0: what the weights are turned into (as stored)\n"
    "  --out DIR        where it comes to; what is there is replaced\n"
    "  --gguf FILE      the file, for llama.cpp and programs that are built on it, of a MiniMind, but for\n"
    "                   MiniMind2's with experts, a llama or a qwen3\n"
    "  --pth FILE       the file, for MiniMind's own programs, in f32, bf16 or f16 without its tokenizer\n"
    "  --help           show this";

static const char *source, *preset, *config_file, *tokenizer_directory, *adapter_path, *dtype, *out, *gguf, *pth;
static char beside[4096]; /* the directory that the source is or lies in, or where a tokenizer of it was unpacked */

/* Whatever the two paths look like. */
static int is_one_place(const char *a, const char *b)
{
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static int is_file(const char *path)
{
    struct stat there;
    return stat(path, &there) == 0 && S_ISREG(there.st_mode);
}

static void find_beside(void)
{
    const char *slash = is_file(source) ? strrchr(source, '/') : source + strlen(source);
    if (!slash)
        snprintf(beside, sizeof beside, ".");
    else
        snprintf(beside, sizeof beside, "%.*s", slash == source ? 1 : (int)(slash - source), source);
}

static void read_arguments(int argc, char **argv)
{
    static const struct {
        const char *name, **to;
    } options[] = { { "--model", &source },
                    { "--preset", &preset },
                    { "--config", &config_file },
                    { "--tokenizer", &tokenizer_directory },
                    { "--adapter", &adapter_path },
                    { "--dtype", &dtype },
                    { "--out", &out },
                    { "--gguf", &gguf },
                    { "--pth", &pth } };
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
    if (!source || !out + !gguf + !pth != 2)
        fail("it takes --model, and one of --out, --gguf and --pth; see --help", "");
    static const char *const dtypes[] = { "f32", "bf16", "q8_0", "q4_0", NULL };
    if (dtype && choose("dtype", dtype, dtypes) > 1 && pth)
        fail("of a .pth --dtype is f32 or bf16, not ", dtype);
    if (access(source, F_OK) != 0)
        fail("there is no model: ", source);
    if ((preset || config_file) && (!is_file(source) || begins_with(source, GGUF_BEGIN)))
        fail("--preset and --config are for a file of torch.save(), others have their config: ", source);
    if (preset && config_file)
        fail("a model has one config: --preset or --config", "");
    find_beside();
    if (out && is_one_place(beside, out) && !is_file(source))
        fail("--model stays as it is, so --out is another directory, not ", out);
    if ((pth && is_one_place(source, pth)) || (gguf && is_one_place(source, gguf)))
        fail("--model stays as it is, so what is written is another file, not ", pth ? pth : gguf);
}

/* The config of a file of torch.save(), which has none itself. */
static mm_config *find_config(void)
{
    mm_config *config = NULL;
    char path[4200];
    snprintf(path, sizeof path, "%s/config.json", beside);
    if (preset)
        check(mm_config_create(preset, &config));
    else if (config_file || access(path, F_OK) == 0)
        check(mm_config_load(config_file ? config_file : beside, &config));
    else
        fail("there is no config.json beside it, so it takes --preset or --config: ", source);
    return config;
}

static void remove_unpacked(void)
{
    static const char *const names[] = { "/tokenizer.json", "/tokenizer_config.json", "" };
    char path[sizeof beside + 32];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s%s", beside, names[i]);
        remove(path);
    }
}

/* The library reads a tokenizer with its template from a directory, so there is one until the program ends. */
static void unpack_words(const gguf_file *file)
{
    snprintf(beside, sizeof beside, "%s/minimind-XXXXXX", temporary_place());
    if (!mkdtemp(beside))
        fail_to_write(beside);
    atexit(remove_unpacked);
    gguf_read_words(file, beside);
}

static mm_model *read_gguf(void)
{
    gguf_file file;
    gguf_open(&file, source);
    mm_model *model = gguf_read(&file);
    if (!tokenizer_directory)
        unpack_words(&file);
    gguf_close(&file);
    return model;
}

static mm_model *read_pth(void)
{
    mm_config *config = find_config();
    mm_model *model = pth_read(source, config);
    mm_config_free(config);
    return model;
}

/* As `numbers` names them, NULL: as they are stored. */
static mm_model *load_model(const char *numbers)
{
    mm_model *model = NULL, *turned = NULL;
    if (!is_file(source)) {
        check(load_as(source, numbers, &model));
        return model;
    }
    model = begins_with(source, GGUF_BEGIN) ? read_gguf() : read_pth();
    if (!numbers)
        return model;
    check(turn_into(numbers, model, &turned));
    mm_model_free(model);
    return turned;
}

/* The model with the adapter in its weights, in place of the model. */
static void merge(mm_model **model)
{
    mm_adapter *adapter = NULL;
    mm_model *merged = NULL;
    if (begins_with(adapter_path, PTH_BEGIN))
        adapter = pth_read_adapter(adapter_path, *model);
    else
        check(mm_adapter_load(*model, adapter_path, &adapter));
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
    char path[4200];
    mm_tokenizer *tokenizer = NULL;
    const char *directory = tokenizer_directory ? tokenizer_directory : beside;
    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    if (tokenizer_directory || access(path, F_OK) == 0)
        check(mm_tokenizer_load(directory, &tokenizer));
    return tokenizer;
}

int main(int argc, char **argv)
{
    start_as(argv);
    read_arguments(argc, argv);
    mm_model *model = load_model(adapter_path && dtype ? "f32" : dtype); /* an adapter adds to all the bits */
    mm_tokenizer *tokenizer = load_tokenizer();
    if (adapter_path)
        merge(&model);
    if (adapter_path && dtype)
        cast(&model);
    if (pth) {
        pth_write(pth, model);
        printf("the model is in %s\n", pth);
    } else if (gguf) {
        const char *words = tokenizer_directory ? tokenizer_directory : beside;
        printf("the model is in %s, as a %s\n", gguf, gguf_write(gguf, model, words, eos_of(model, tokenizer)));
    } else {
        check(mm_model_save(model, out));
        if (tokenizer)
            check(mm_tokenizer_save(tokenizer, out));
        const char *without = is_file(source) ? ", without a tokenizer, which --tokenizer DIR would take along" :
                                                ", without a tokenizer, as it was";
        printf("the model is in %s%s\n", out, tokenizer ? "" : without);
    }
    mm_tokenizer_free(tokenizer);
    mm_model_free(model);
    return written(EXIT_SUCCESS);
}
