/* Every malloc of the process fails once, and then from some point on for good: the libraries' below us included. This
 * program's own malloc stands before the C library's; so it is not built with sanitizers, which do the same. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "deeds.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *memory);
void *aligned_alloc(size_t align, size_t size);
int posix_memalign(void **out, size_t align, size_t size);
int fsync(int fd);

static atomic_long live;  /* blocks that are held */
static atomic_long asked; /* requests while counting */
static long fails_at;     /* 0: none */
static bool counting, forever;

static bool refuse(void)
{
    if (!counting)
        return false;
    long n = atomic_fetch_add(&asked, 1) + 1;
    return fails_at > 0 && (forever ? n >= fails_at : n == fails_at);
}

static void *count(void *memory)
{
    if (memory)
        atomic_fetch_add(&live, 1);
    return memory;
}

void *malloc(size_t size)
{
    return refuse() ? NULL : count(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return refuse() ? NULL : count(__libc_calloc(n, size));
}

void *realloc(void *memory, size_t size)
{
    if (refuse())
        return NULL;
    void *grown = __libc_realloc(memory, size);
    return memory ? grown : count(grown);
}

void *aligned_alloc(size_t align, size_t size)
{
    return refuse() ? NULL : count(__libc_memalign(align, size));
}

int posix_memalign(void **out, size_t align, size_t size)
{
    *out = aligned_alloc(align, size);
    return *out ? 0 : 12; /* ENOMEM */
}

void free(void *memory)
{
    if (memory)
        atomic_fetch_sub(&live, 1);
    __libc_free(memory);
}

/* A thousand saves need not wait for the disk. */
int fsync(int fd)
{
    return fd < 0 ? -1 : 0;
}

/* Run with the n-th request failing; 1 if it came so far. */
static int attempt(int which, long n)
{
    long before = atomic_load(&live);
    atomic_store(&asked, 0);
    fails_at = n;
    counting = true;
    mm_status status = deeds[which].run();
    counting = false;
    long made = atomic_load(&asked), after = atomic_load(&live);
    ck_assert_msg(after <= before, "%s, %ld%s: %ld blocks leak", deeds[which].name, n, forever ? " on" : "",
                  after - before);
    /* What is only to make things faster, such as PCRE2's compiler, may go without. Where the C library walks through a
     * directory to remove it, errno is not always what it was. */
    bool may_be_io = forever || deeds[which].trains;
    ck_assert_msg(status == MM_OK || status == MM_ERR_MEMORY || (status == MM_ERR_IO && may_be_io),
                  "%s, %ld%s: %s (%s)", deeds[which].name, n, forever ? " on" : "", mm_status_name(status),
                  mm_last_error());
    return made >= n;
}

/* Every n up to here; beyond it, as many more: requests repeat, key by key, token by token. */
static long each(int which)
{
    return deeds[which].trains ? 160 : 400;
}
static bool all;
static long part, parts = 1;

/* Called with arguments, one part's number and how many parts there are, the program tries every n, for which a training
 * run of 15 000 requests takes minutes; so for stages that share all but their objective with another, and for memory that
 * stays gone in any, it tries every 7th. The parts take turns, so that processors share the work evenly. */
static long spacing(int which)
{
    if (!all)
        return 1 + atomic_load(&asked) / each(which);
    return deeds[which].trains && (forever || deeds[which].alike) ? 7 : 1;
}

static void every_request(int which)
{
    ck_ok(deeds[which].run()); /* what is made once, such as a directory stream's buffer in the C library */
    attempt(which, 0);         /* which counts them */
    const long step = spacing(which);
    for (long n = 1, turn = 0; turn % parts != part || attempt(which, n); turn++)
        n += n < each(which) ? 1 : step;
    ck_ok(deeds[which].run());
}

START_TEST(a_malloc_that_fails_once_is_survived)
{
    deeds_prepare();
    forever = false;
    every_request(_i);
}
END_TEST

START_TEST(memory_that_is_gone_for_good_is_survived)
{
    deeds_prepare();
    forever = true;
    every_request(_i);
}
END_TEST

/* A key, a string with escapes and a number, of `size` bytes and more each. */
static size_t write_tokens(char *text, size_t room, int size)
{
    char key[80] = "", escapes[80] = "", digits[80] = "1";
    for (int i = 0; i < size; i++) {
        key[i] = 'k';
        escapes[i] = i % 2 == 0 ? '\\' : 'n';
        digits[i] = '1';
    }
    escapes[size / 2 * 2] = '\0';
    return (size_t)snprintf(text, room, "{\"%s\": \"%s\", \"d\": 0.%s}", key, escapes, digits);
}

/* What is read of it with the n-th request failing; true while it came so far. */
static bool reads_tokens(const char *text, size_t length, long n)
{
    mmi_json *value = NULL;
    atomic_store(&asked, 0);
    fails_at = n;
    counting = true;
    mm_status status = mmi_json_parse(text, length, "tokens", &value);
    counting = false;
    ck_assert_msg(status == MM_ERR_MEMORY || (status == MM_OK && mmi_json_size(value) == 2), "%s, %ld: %s", text, n,
                  mm_last_error());
    if (status == MM_OK) {
        char *again = NULL;
        size_t size;
        ck_ok(mmi_json_write(mmi_json_get(value, "d"), 0, &again, &size));
        ck_assert_msg(strtod(again, NULL) == strtod(strstr(text, "0."), NULL), "%s, %ld: %s", text, n, again);
        mmi_free(again);
    }
    mmi_json_free(value);
    return atomic_load(&asked) >= n;
}

/* Jansson's own buffer grows at sizes that a token's last byte may be the one for. */
START_TEST(tokens_of_every_length_are_read_whole_or_not_at_all)
{
    char text[400];
    forever = _i == 1;
    for (int size = 1; size <= 70; size++) {
        size_t length = write_tokens(text, sizeof text, size);
        for (long n = 1; reads_tokens(text, length, n); n++)
            ;
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("malloc");
    TCase *tc = tcase_create("malloc");
    tcase_set_timeout(tc, 600);
    tcase_add_loop_test(tc, a_malloc_that_fails_once_is_survived, 0, DEEDS);
    tcase_add_loop_test(tc, memory_that_is_gone_for_good_is_survived, 0, DEEDS);
    tcase_add_loop_test(tc, tokens_of_every_length_are_read_whole_or_not_at_all, 0, 2);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(int argc, char **argv)
{
    all = argc == 3;
    if (all) {
        part = strtol(argv[1], NULL, 10) - 1;
        parts = strtol(argv[2], NULL, 10);
    }
    if (argc > 3 || argc == 2 || part < 0 || part >= parts) {
        fprintf(stderr, "usage: %s [PART PARTS]\n", argv[0]);
        return 2;
    }
    return run_suite(make_suite());
}
