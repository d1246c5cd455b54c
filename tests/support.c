#define _XOPEN_SOURCE 700
#include "support.h"

#include <ftw.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "others.h"

static char scratch[256];
static pid_t scratch_owner;

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void remove_scratch(void)
{
    if (scratch_owner == getpid() && scratch[0] != '\0')
        nftw(scratch, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

int run_suite(Suite *suite)
{
    if (others_show_as_much()) {
        puts("1..0 # SKIP this processor is what MM_CPU pretends");
        srunner_free(srunner_create(suite));
        return EXIT_SUCCESS;
    }
    /* The tests run in forked children: the parent makes one root and removes it with all they left. */
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/minimind-test-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(scratch)) {
        perror(scratch);
        return EXIT_FAILURE;
    }
    scratch_owner = getpid();
    SRunner *runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    remove_scratch();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

const char *shared_path(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", MM_SHARED, name);
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *scratch_directory(void)
{
    static char path[320];
    snprintf(path, sizeof path, "%s/XXXXXX", scratch);
    if (!mkdtemp(path))
        ck_abort_msg("can't make a directory in %s", scratch);
    return path;
}

bool set_decimal_comma(void)
{
    char source[400], command[1024];
    const char *place = scratch_directory();
    snprintf(source, sizeof source, "%s/comma.src", place);
    FILE *file = fopen(source, "w");
    ck_assert_ptr_nonnull(file);
    fputs("LC_NUMERIC\ndecimal_point \"<U002C>\"\nthousands_sep \"<U002E>\"\ngrouping 3;3\nEND LC_NUMERIC\n", file);
    ck_assert_int_eq(fclose(file), 0);
    snprintf(command, sizeof command, "localedef -c --no-archive -i '%s' '%s/comma' >/dev/null 2>&1", source, place);
    (void)!system(command); /* it warns of the other categories with its exit status */
    setenv("LOCPATH", place, 1);
    const bool set = setlocale(LC_NUMERIC, "comma") && strcmp(localeconv()->decimal_point, ",") == 0;
    if (!set)
        fprintf(stderr, "# skipped: no locale with a decimal comma can be made\n");
    return set;
}

uint64_t bytes_held(void)
{
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    ck_ok(mm_memory_get_usage(&usage));
    return usage.current;
}

double relative_error(const float *a, const float *b, size_t n)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

void rng_fill(test_rng *rng, float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = scale * (float)(2 * rng_uniform(rng) - 1);
}
