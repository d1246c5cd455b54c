/* tokenize: text to token ids, and back.
 *
 *     tokenize --tokenizer DIR "Hello, world"        the text's ids, and its tokens in colour
 *     tokenize --tokenizer DIR < file.txt            the same for standard input
 *     tokenize --tokenizer DIR --decode 35 302 17    the text of these ids
 *
 * A tokenizer cuts text into the pieces a model knows by number. This program shows the three calls that are needed:
 * mm_tokenizer_load(), mm_encode() and mm_decode(). */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"

static void help(void)
{
    show_usage("--tokenizer DIR [--decode] [TEXT... | ID...]\n"
               "\n"
               "Turn text into token ids, or with --decode token ids into text. What is not on the\n"
               "command line is read from standard input.\n"
               "\n"
               "  --tokenizer DIR  a directory with a tokenizer.json, or that file itself\n"
               "  --decode         the input is ids, separated by spaces, commas or ends of line\n"
               "  --help           show this");
}

/* The words of the command line with a space between them, as the shell took them apart. */
static char *join_words(char **words, int count, size_t *length)
{
    size_t size = 1;
    for (int i = 0; i < count; i++)
        size += strlen(words[i]) + 1;
    char *text = need(malloc(size));
    size_t n = 0;
    for (int i = 0; i < count; i++) {
        if (i > 0)
            text[n++] = ' ';
        memcpy(text + n, words[i], strlen(words[i]));
        n += strlen(words[i]);
    }
    text[n] = '\0';
    *length = n;
    return text;
}

/* Each token on a background of its own. A token may be a part of a character: the decoder holds it back until the
 * character is whole, and what it then gives belongs to all tokens since the last text. */
static void print_coloured(mm_tokenizer *tokenizer, const int32_t *ids, size_t count)
{
    static const char *const backgrounds[] = { "\033[30;46m", "\033[30;43m", "\033[30;42m", "\033[30;45m" };
    mm_decoder *decoder = NULL;
    const char *text;
    size_t length, shown = 0;
    check(mm_decoder_create(tokenizer, 0, &decoder));
    for (size_t i = 0; i < count; i++) {
        check(mm_decoder_push(decoder, ids[i], &text, &length));
        if (length == 0)
            continue;
        fputs(backgrounds[shown++ % 4], stdout);
        for (size_t k = 0; k < length; k++) {
            if (text[k] == '\n') /* colours end with their line */
                printf("\xE2\x86\xB5\033[0m\n%s", backgrounds[(shown - 1) % 4]);
            else
                putchar(text[k]);
        }
        fputs("\033[0m", stdout);
    }
    check(mm_decoder_flush(decoder, &text, &length));
    fwrite(text, 1, length, stdout);
    putchar('\n');
    mm_decoder_free(decoder);
}

static void encode(mm_tokenizer *tokenizer, const char *text, size_t length)
{
    /* A token covers at least one byte, so `length` ids are room enough. Where memory is dear, call mm_encode() with
     * NULL and 0 first: then it only counts. */
    int32_t *ids = need(malloc((length + 1) * sizeof *ids));
    size_t count = 0;
    check(mm_encode(tokenizer, text, length, MM_SPLIT_ALL, ids, length + 1, &count));
    for (size_t i = 0; i < count; i++)
        printf("%s%d", i > 0 ? " " : "", (int)ids[i]);
    putchar('\n');
    if (has_colours(stdout))
        print_coloured(tokenizer, ids, count);
    if (isatty(STDOUT_FILENO))
        printf("%zu bytes, %zu tokens\n", length, count);
    free(ids);
}

static int32_t read_id(const char *text, char **end)
{
    errno = 0;
    long id = strtol(text, end, 10);
    if (*end == text || errno != 0 || id < 0 || id > INT32_MAX) {
        fprintf(stderr, "%s: \"%.20s\" is not a token id\n", program, text);
        exit(EXIT_FAILURE);
    }
    return (int32_t)id;
}

static void decode(mm_tokenizer *tokenizer, const char *list, size_t length)
{
    int32_t *ids = need(malloc((length + 1) * sizeof *ids));
    size_t count = 0, size = 0;
    char *end;
    for (const char *at = list + strspn(list, " ,\t\r\n"); at < list + length; at = end + strspn(end, " ,\t\r\n"))
        ids[count++] = read_id(at, &end);
    /* Asked with no buffer, mm_decode() tells how large it must be. */
    check(mm_decode(tokenizer, ids, count, 0, NULL, 0, &size));
    char *text = need(malloc(size + 1));
    check(mm_decode(tokenizer, ids, count, 0, text, size + 1, &size));
    fwrite(text, 1, size, stdout);
    putchar('\n');
    free(text);
    free(ids);
}

int main(int argc, char **argv)
{
    start_as(argv);
    const char *path = NULL;
    int decoding = 0, first = 1;
    for (; first < argc && strncmp(argv[first], "--", 2) == 0; first++) {
        if (strcmp(argv[first], "--help") == 0) {
            help();
            return written(EXIT_SUCCESS);
        } else if (strcmp(argv[first], "--decode") == 0) {
            decoding = 1;
        } else if (strcmp(argv[first], "--tokenizer") == 0 && first + 1 < argc) {
            path = argv[++first];
        } else if (strcmp(argv[first], "--") == 0) {
            first++;
            break;
        } else {
            const char *what = strcmp(argv[first], "--tokenizer") == 0 ? "lacks its value" : "is no option here";
            fprintf(stderr, "%s: %s %s; --help shows what there is\n", program, argv[first], what);
            return EXIT_FAILURE;
        }
    }
    if (!path)
        fail("--tokenizer DIR is needed; --help shows more", "");

    mm_tokenizer *tokenizer = NULL;
    check(mm_tokenizer_load(path, &tokenizer));
    size_t length;
    char *input =
        first < argc ? join_words(argv + first, argc - first, &length) : read_all(stdin, "standard input", &length);
    if (decoding)
        decode(tokenizer, input, length);
    else
        encode(tokenizer, input, length);
    free(input);
    mm_tokenizer_free(tokenizer);
    return written(EXIT_SUCCESS);
}
