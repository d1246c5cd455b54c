/* How programs end, well or not, and the line that moves meanwhile; and the command lines of the training programs: tables
 * of options, MiniMind's names with dashes or underscores. */
#ifndef EXAMPLES_OPTIONS_H
#define EXAMPLES_OPTIONS_H

#include <minimind.h>
#include <stdio.h>

/* The name that messages begin with: what the program was started as, "chat" or "minimind-chat", once main() begins with
 * start_as(). */
extern const char *program;
void start_as(char **argv);

/* Print "usage: program" and `text`. */
void show_usage(const char *text);

/* Print "program: what which" and end with status 1. */
_Noreturn void fail(const char *what, const char *which);

/* The same of a message that quotes a file, which may hold what a terminal obeys: each such character becomes a "?". */
_Noreturn void fail_plainly(char *message);

/* And "can't write path: why", as errno has it. */
_Noreturn void fail_to_write(const char *path);

/* The directory for temporary files: TMPDIR, or /tmp. */
const char *temporary_place(void);

/* Every call that can fail returns a status; mm_last_error() has the story behind it. */
void check(mm_status status);

/* Memory as it was asked for; without it the program ends. */
void *need(void *memory);

/* All of a file, with a NUL behind it, to be freed; NULL for one that couldn't be opened. `name` is what a message calls
 * it. It's closed, but for standard input. */
char *read_all(FILE *file, const char *name, size_t *length);

/* For the end of main(): `status`, or 1 and a message where standard output, such as a full disk, didn't take all. */
int written(int status);

/* `text` in place of the line that was shown before, cut to the terminal's width; "" wipes it. Pipes, files and dumb
 * terminals are sent nothing: they can't take a line back. */
void show_moving(FILE *to, const char *text);

/* Is it a terminal that has colours, of someone who wants them? Who does not has set NO_COLOR, see no-color.org. */
int has_colours(FILE *to);

/* A table of options ends with a NULL name. A help of NULL keeps one off the list. The name of a HEADING stands over
 * the options behind it. A FLAG has no value, a SWITCH has 0 or 1. */
enum { TEXT, COUNT, REAL, FLAG, SWITCH, LIST, HEADING };
typedef struct option_row {
    const char *name;
    int kind;
    void *to; /* char * of a TEXT, a list of texts of a LIST, double of the others; NAN and NULL are open */
    const char *help;
} option_row;

/* An option that may be given again. */
typedef struct text_list {
    const char *items[8];
    int32_t count;
} text_list;

/* Read the command line by two tables, the program's own and what it shares; --help prints `about` and both of them. An
 * own option stands before a shared one of its name; one that sets what a shared one does is listed in its stead. */
void read_tables(int argc, char **argv, const char *about, const option_row *own, const option_row *shared);

/* The place of `name` in a list that ends with NULL; if it has none, fails and says what there is. */
int32_t choose(const char *option, const char *name, const char *const *names);

/* A directory, with all above it that are missing; whoever writes there says what could not be made. */
void make_directories(const char *path);

/* How many bytes of a path are there already; and what was made beyond them goes again, where it is empty. */
size_t part_there(const char *path);
void remove_empty(const char *path, size_t there);

/* Fail, with what `option` and the path are called, where no file can be made: one comes and goes, and so do directories. */
void must_take_files(const char *option, const char *where);

/* A number that must fit an int32_t. */
int32_t small(const char *option, double value);

#endif
