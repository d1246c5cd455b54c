#define _POSIX_C_SOURCE 200809L /* isatty, fileno, SIGXFSZ */

#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

const char *program = "example";

/* The number of a standard stream that is closed would be the next file's, and what is said would land there. Opened
 * the wrong way round it goes on failing, as a closed one does. */
static void hold_streams(void)
{
    for (int i = 0; i < 3; i++)
        if (fcntl(i, F_GETFD) == -1 && open("/dev/null", i == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
            return;
}

void start_as(char **argv)
{
    const char *folder = argv[0] ? strrchr(argv[0], '/') : NULL;
    program = folder ? folder + 1 : argv[0] ? argv[0] : program;
    hold_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file that may grow no longer is told of by name, as a full disk is */
}

void show_usage(const char *text)
{
    printf("usage: %s %s\n", program, text);
}

static int can_move(FILE *to)
{
    const char *terminal = getenv("TERM");
    return isatty(fileno(to)) && terminal && strcmp(terminal, "dumb") != 0;
}

int has_colours(FILE *to)
{
    const char *without = getenv("NO_COLOR");
    return can_move(to) && !(without && without[0]);
}

static int width_of(FILE *to)
{
    struct winsize size;
    return ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void show_moving(FILE *to, const char *text)
{
    if (!can_move(to))
        return;
    fprintf(to, "\r\033[K%.*s", width_of(to) - 1, text); /* behind the last column some terminals begin a new line */
    fflush(to);
}

void fail(const char *what, const char *which)
{
    show_moving(stderr, "");
    fprintf(stderr, "%s: %s%s\n", program, what, which);
    exit(EXIT_FAILURE);
}

void fail_plainly(char *message)
{
    for (char *c = message; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    fail(message, "");
}

void fail_to_write(const char *path)
{
    char message[4400];
    snprintf(message, sizeof message, "can't write %s: %s", path, strerror(errno));
    fail(message, "");
}

const char *temporary_place(void)
{
    const char *place = getenv("TMPDIR");
    return place && place[0] ? place : "/tmp";
}

void check(mm_status status)
{
    if (status != MM_OK)
        fail(mm_last_error(), "");
}

void *need(void *memory)
{
    if (!memory)
        fail("out of memory", "");
    return memory;
}

char *read_all(FILE *file, const char *name, size_t *length)
{
    size_t room = 65536, n = 0, got;
    char *text = need(malloc(room));
    while (file && (got = fread(text + n, 1, room - n - 1, file)) > 0) {
        n += got;
        if (n + 1 == room)
            text = need(realloc(text, room *= 2));
    }
    if (!file || ferror(file))
        fail("can't read ", name);
    if (file != stdin)
        fclose(file);
    text[n] = '\0';
    *length = n;
    return text;
}

int written(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "%s: can't write standard output\n", program);
    return EXIT_FAILURE;
}

static void show_default(const option_row *row)
{
    if (row->kind == TEXT && *(char **)row->to)
        printf(" (%s)", *(char **)row->to);
    else if ((row->kind == COUNT || row->kind == REAL || row->kind == SWITCH) && !isnan(*(double *)row->to))
        printf(" (%g)", *(double *)row->to);
    putchar('\n');
}

/* Can a shared option be given by its name, or is that one of the program's own? */
static int is_within_reach(const option_row *row, const option_row *own)
{
    while (own->name && strcmp(row->name, own->name) != 0)
        own++;
    return row->help && !own->name;
}

/* The shared option that sets what an own one does, by another name; NULL: there is none. */
static const option_row *shared_twin(const option_row *row, const option_row *const tables[2])
{
    for (const option_row *other = tables[1]; other->name; other++)
        if (other->to == row->to && is_within_reach(other, tables[0]))
            return other;
    return NULL;
}

static int is_listed(const option_row *row, const option_row *const tables[2], int table)
{
    if (!row->help || table == 0)
        return row->help != NULL;
    for (const option_row *own = tables[0]; own->name; own++)
        if (own->help && own->to == row->to)
            return 0;
    return is_within_reach(row, tables[0]);
}

static void list(const char *heading, const option_row *const tables[2], int table)
{
    for (const option_row *row = tables[table]; row->name; row++) {
        if (row->kind == HEADING)
            heading = row->name;
        if (!is_listed(row, tables, table))
            continue;
        if (heading)
            printf("\n%s:\n", heading);
        heading = NULL;
        const option_row *twin = table == 0 ? shared_twin(row, tables) : NULL;
        printf("  --%-19s %s%s%s", row->name, row->help, twin ? "; also --" : "", twin ? twin->name : "");
        show_default(row);
    }
}

static void help(const char *about, const option_row *const tables[2])
{
    printf("usage: %s [OPTION VALUE]...\n\n%s Ctrl-C saves and stops.\n", program, about);
    list("This program's own", tables, 0);
    list(NULL, tables, 1);
    puts("\n--device, --num-workers, --use-compile, --use-wandb and --wandb-project are taken\n"
         "as MiniMind takes them, and have no effect here.");
}

static double read_number(const option_row *row, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0) || value > 9e15 || (row->kind == COUNT && value != floor(value)))
        fail(row->kind == COUNT ? "not a whole number from 0 up, but asked for by --" : "not a number from 0 up: --",
             row->name);
    if (row->kind == SWITCH && value != 0 && value != 1)
        fail("not 0 or 1, which are asked for by --", row->name);
    return value;
}

static void take(const option_row *row, char *value)
{
    text_list *list = row->to;
    if (row->kind == TEXT)
        *(char **)row->to = value;
    else if (row->kind == LIST && list->count < (int32_t)(sizeof list->items / sizeof *list->items))
        list->items[list->count++] = value;
    else if (row->kind == LIST)
        fail("given too often: --", row->name);
    else
        *(double *)row->to = row->kind == FLAG ? 1 : read_number(row, value);
}

void read_tables(int argc, char **argv, const char *about, const option_row *own, const option_row *shared)
{
    /* Each option has a number of its own, above any character: what several names begin with, such as --max, would be
     * the first of them for getopt_long if they had the same. */
    enum { FIRST = 256 };
    const option_row *const tables[2] = { own, shared };
    const option_row *rows[96];
    struct option table[97] = { { NULL, 0, NULL, 0 } };
    int count = 0, found;
    for (int t = 0; t < 2; t++)
        for (const option_row *row = tables[t]; row->name && count < 95; row++) {
            if (row->kind == HEADING || (t == 1 && row->help && !is_within_reach(row, own)))
                continue;
            rows[count] = row;
            table[count] =
                (struct option){ row->name, row->kind == FLAG ? no_argument : required_argument, NULL, FIRST + count };
            count++;
        }
    table[count] = (struct option){ "help", no_argument, NULL, FIRST + count };
    for (int i = 1; i < argc; i++)
        for (char *c = argv[i]; strncmp(argv[i], "--", 2) == 0 && *c && *c != '='; c++)
            *c = *c == '_' ? '-' : *c;
    start_as(argv);
    argv[0] = (char *)program; /* getopt_long's messages begin with it */
    while ((found = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (found < FIRST)
            exit(EXIT_FAILURE); /* getopt_long has said why */
        if (found == FIRST + count) {
            help(about, tables);
            exit(written(EXIT_SUCCESS));
        }
        take(rows[found - FIRST], optarg);
    }
    if (optind < argc)
        fail("no such option, --help lists them: ", argv[optind]);
}

int32_t choose(const char *option, const char *name, const char *const *names)
{
    for (int32_t i = 0; names[i]; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    fprintf(stderr, "%s: --%s can't be \"%s\", but ", program, option, name);
    for (int32_t i = 0; names[i]; i++)
        fprintf(stderr, "%s%s", i == 0 ? "" : names[i + 1] ? ", " : " or ", names[i]);
    fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

int32_t small(const char *option, double value)
{
    if (value > INT32_MAX)
        fail("too large: --", option);
    return (int32_t)value;
}

/* Cut a path's last part off. */
static void to_parent(char *path)
{
    char *slash = strrchr(path, '/');
    *(slash ? slash : path) = '\0';
}

size_t part_there(const char *path)
{
    char part[4200];
    snprintf(part, sizeof part, "%s", path);
    while (part[0] && access(part, F_OK) != 0)
        to_parent(part);
    return strlen(part);
}

void remove_empty(const char *path, size_t there)
{
    char part[4200];
    snprintf(part, sizeof part, "%s", path);
    while (strlen(part) > there && (rmdir(part) == 0 || errno == ENOENT))
        to_parent(part);
}

void make_directories(const char *path)
{
    char part[4200];
    snprintf(part, sizeof part, "%s", path);
    for (char *c = part + 1; *part && *c; c++)
        if (*c == '/') {
            *c = '\0';
            mkdir(part, 0777); /* that it was there already is as well */
            *c = '/';
        }
    mkdir(part, 0777);
}

void must_take_files(const char *option, const char *where)
{
    const size_t there = part_there(where);
    char path[4300];
    make_directories(where);
    snprintf(path, sizeof path, "%s/.try-XXXXXX", where);
    int file = mkstemp(path);
    if (file < 0) {
        int reason = errno;
        remove_empty(where, there);
        snprintf(path, sizeof path, "%s%s: can't write there: ", option, where);
        fail(path, strerror(reason));
    }
    close(file);
    unlink(path);
    remove_empty(where, there);
}
