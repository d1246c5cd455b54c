/* train_tokenizer: learn a byte-level BPE from text.
 *
 *     train_tokenizer --vocab-size 6400 --out DIR corpus.jsonl more.txt
 *
 * A tokenizer decides what a model's words are. It starts from the 256 bytes and keeps joining the pair of neighbours
 * that occurs most often, until the vocabulary is full. The trainer asks for text piece by piece through a callback, so
 * the corpus may be larger than memory. DIR then holds a tokenizer.json that other tools can read too. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

static const char usage[] =
    "--out DIR [OPTION...] FILE...\n"
    "\n"
    "Learn a byte-level BPE tokenizer. A FILE that ends in .jsonl holds rows {\"text\": \"...\"};\n"
    "any other is plain text in UTF-8.\n"
    "\n"
    "  --out DIR            where tokenizer.json goes\n"
    "  --vocab-size N       ids at most, the 256 bytes included (6400)\n"
    "  --min-frequency N    leave alone what occurs less often (1)\n"
    "  --special TOKEN      a special token; may be given again. They take the first ids\n"
    "                       (<|endoftext|> <|im_start|> <|im_end|>)\n"
    "  --quiet              no progress line";

/* The corpus: the files in turn, each row by row or line by line. */
typedef struct corpus {
    char **paths;
    int count, next;
    mm_dataset *rows; /* the open .jsonl file */
    FILE *lines; /* the open text file */
    int64_t row; /* of either, how many were read */
    char *buffer;
    size_t room;
    bool quiet;
} corpus;

static void make_room(corpus *c, size_t needed)
{
    if (needed <= c->room)
        return;
    c->room = 2 * needed;
    c->buffer = need(realloc(c->buffer, c->room));
}

/* Ask for the row's size, make room, ask for the row. */
static size_t read_row(corpus *c)
{
    size_t length = 0;
    check(mm_dataset_text(c->rows, c->row, NULL, 0, &length));
    make_room(c, length + 1);
    if (length > 0)
        check(mm_dataset_text(c->rows, c->row, c->buffer, c->room, &length));
    c->row++;
    return length;
}

/* A line with its end; 0 at the end of the file. */
static size_t read_line(corpus *c)
{
    size_t length = 0;
    int byte;
    while ((byte = getc(c->lines)) != EOF) {
        make_room(c, length + 1);
        c->buffer[length++] = (char)byte;
        if (byte == '\n')
            break;
    }
    c->row++;
    return length;
}

static void open_next(corpus *c)
{
    const char *path = c->paths[c->next++];
    size_t length = strlen(path);
    c->row = 0;
    if (length > 6 && strcmp(path + length - 6, ".jsonl") == 0) {
        check(mm_dataset_open(path, &c->rows));
    } else if (!(c->lines = fopen(path, "rb"))) {
        fail("can't open ", path);
    }
}

/* What mm_tokenizer_train() calls for more: 1 with a piece of text, 0 at the end. */
static int32_t next_text(void *user, const char **text, size_t *length)
{
    corpus *c = user;
    for (;;) {
        if (c->rows && c->row < mm_dataset_rows(c->rows)) {
            *length = read_row(c);
            break;
        }
        if (c->lines && (*length = read_line(c)) > 0)
            break;
        if (c->lines && ferror(c->lines))
            fail("can't read ", c->paths[c->next - 1]);
        if (c->lines)
            fclose(c->lines);
        mm_dataset_free(c->rows);
        c->rows = NULL;
        c->lines = NULL;
        if (c->next == c->count)
            return 0;
        open_next(c);
    }
    *text = c->buffer;
    return 1;
}

/* Rows are UTF-8 where they are JSON; a line need not be, and the library knows none of its file. */
static void fail_in_text(const corpus *c)
{
    char place[4300] = "";
    if (c->lines)
        snprintf(place, sizeof place, "%s:%lld: ", c->paths[c->next - 1], (long long)c->row);
    fail(place, mm_last_error());
}

static int32_t show_progress(void *user, int64_t done, int64_t total)
{
    const corpus *c = user;
    char line[80];
    snprintf(line, sizeof line, "%lld of %lld merges", (long long)done, (long long)total);
    if (!c->quiet && (done % 100 == 0 || done == total))
        show_moving(stderr, line);
    return 0;
}

static int64_t whole(const char *text, int64_t low, int64_t high, const char *name)
{
    char *end;
    errno = 0; /* what is larger than any would be the largest */
    long long value = strtoll(text, &end, 10);
    char message[160];
    snprintf(message, sizeof message, "%s takes a whole number from %lld to %lld, not \"%.60s\"", name, (long long)low,
             (long long)high, text);
    if (end == text || *end != '\0' || errno != 0 || value < low || value > high)
        fail(message, "");
    return value;
}

static bool is_option(const char *word)
{
    static const char *const names[] = { "--out", "--vocab-size", "--min-frequency", "--special" };
    size_t i = 0;
    while (i < sizeof names / sizeof *names && strcmp(word, names[i]) != 0)
        i++;
    return i < sizeof names / sizeof *names;
}

int main(int argc, char **argv)
{
    start_as(argv);
    mm_tokenizer_train_options options = MM_TOKENIZER_TRAIN_OPTIONS_INIT;
    const char *out = NULL;
    const char **special = need(calloc((size_t)argc, sizeof *special));
    corpus c = { need(calloc((size_t)argc, sizeof *c.paths)), 0, 0, NULL, NULL, 0, NULL, 0, false };
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--help") == 0)
            show_usage(usage), exit(written(EXIT_SUCCESS));
        if (strcmp(argv[i], "--quiet") == 0)
            c.quiet = true;
        else if (strncmp(argv[i], "--", 2) != 0)
            c.paths[c.count++] = argv[i];
        else if (!is_option(argv[i]))
            fail("no such option, see --help: ", argv[i]);
        else if (!value)
            fail("no value for ", argv[i]);
        else if (strcmp(argv[i++], "--out") == 0)
            out = value;
        else if (strcmp(argv[i - 1], "--vocab-size") == 0)
            options.vocab_size = (int32_t)whole(value, 257, INT32_MAX, "--vocab-size");
        else if (strcmp(argv[i - 1], "--min-frequency") == 0)
            options.min_frequency = whole(value, 1, INT64_MAX, "--min-frequency");
        else
            special[options.special_count++] = value;
    }
    if (!out || c.count == 0)
        fail("it takes --out DIR and a file; see --help", "");
    must_take_files("--out ", out); /* rather now than when all is counted */

    options.next_text = next_text;
    options.on_progress = show_progress;
    options.user = &c;
    options.special_tokens = options.special_count > 0 ? special : NULL;
    mm_tokenizer *tokenizer = NULL;
    if (mm_tokenizer_train(&options, &tokenizer) != MM_OK)
        fail_in_text(&c);
    check(mm_tokenizer_save(tokenizer, out));
    show_moving(stderr, "");
    fprintf(stderr, "%s: %d tokens\n", out, mm_tokenizer_vocab_size(tokenizer));

    mm_tokenizer_free(tokenizer);
    free(c.buffer);
    free(c.paths);
    free(special);
    return EXIT_SUCCESS;
}
