/* Which kernels a name, a processor and MM_CPU give. */
#define _POSIX_C_SOURCE 200809L
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "../nn/exec.h"
#include "tables.h"

START_TEST(paths_are_listed_slowest_first_and_found_by_name)
{
    unsetenv("MM_CPU");
    ck_assert_int_ge(mm_kernels_count(), 1);
    ck_assert_int_eq(mm_kernels_count(), mmi_path_count());
    ck_assert_str_eq(mm_kernels_name(0), "c");
    for (int32_t i = 0; i < mm_kernels_count(); i++) {
        const mmi_path *path = mmi_path_find(mm_kernels_name(i));
        ck_assert_ptr_nonnull(path);
        ck_assert_str_eq(path->name, mm_kernels_name(i));
        ck_assert_ptr_eq(path, mmi_path_get(i));
    }
    ck_assert_ptr_null(mm_kernels_name(mm_kernels_count()));
    ck_assert_ptr_null(mm_kernels_name(-1));
    ck_assert_ptr_null(mmi_path_find("mmx"));
    ck_assert_ptr_eq(mmi_path_find(NULL), mmi_path_get(mmi_path_count() - 1));
    ck_assert_ptr_null(mmi_path_find(""));
}
END_TEST

/* What EACH_PATH_OF_FLOATS() leaves out: sets that only extend the one before them. */
START_TEST(only_sets_that_bring_products_of_bytes_have_the_functions_of_the_path_before_them)
{
    int paths = 0, of_floats = 0, extensions = 0;
    EACH_PATH_OF_FLOATS (path)
        of_floats += path->blas == 0;
    EACH_PATH (path) {
        paths += path->blas == 0;
        extensions += !path->blas && (strcmp(path->name, "avxvnni") == 0 || strcmp(path->name, "vnni") == 0 ||
                                      strcmp(path->name, "dot") == 0);
    }
    ck_assert_int_eq(of_floats, paths - extensions);
}
END_TEST

START_TEST(the_openblas_path_is_there_when_it_is_built_in)
{
#if MM_HAVE_OPENBLAS
    const mmi_path *path = mmi_path_find("openblas");
    ck_assert_ptr_nonnull(path);
    ck_assert_int_eq(path->blas, 1);
    unsigned flags = mmi_cpu_flags();
    ck_assert_uint_eq(path->cpu, flags & MMI_CPU_AVX512 ? flags & ~(unsigned)MMI_CPU_AVXVNNI : flags);
#else
    ck_assert_ptr_null(mmi_path_find("openblas"));
#endif
}
END_TEST

/* The paths of a processor with `cpu`, slowest first, and what OpenBLAS comes with. */
static void ck_paths(unsigned cpu, const char *names, unsigned with_openblas)
{
    char found[128] = "";
    int32_t i = 0;
    for (const mmi_path *path; (path = mmi_path_of(cpu, i)); i++) {
        ck_assert_uint_eq(path->cpu & MMI_CPU_INTEL, path->cpu & MMI_CPU_AVX512 ? cpu & MMI_CPU_INTEL : 0);
        if (path->blas)
            ck_assert_uint_eq(path->cpu, with_openblas);
        else
            strcat(strcat(found, *found ? " " : ""), path->name);
    }
    ck_assert_str_eq(found, names);
#if MM_HAVE_OPENBLAS
    ck_assert_int_eq(mmi_path_of(cpu, i - 1)->blas, 1);
#endif
    ck_assert_ptr_null(mmi_path_of(cpu, -1));
}

START_TEST(paths_are_those_of_the_processor_and_its_maker)
{
    const unsigned avxvnni = MMI_CPU_AVX2 | MMI_CPU_AVXVNNI, avx512 = MMI_CPU_AVX2 | MMI_CPU_AVX512;
    const unsigned vnni = avx512 | MMI_CPU_VNNI, bf16 = vnni | MMI_CPU_BF16, intel = bf16 | MMI_CPU_INTEL;
    ck_paths(0, "c", 0);
    ck_paths(avxvnni, "c avx2 avxvnni", avxvnni);
    ck_paths(avx512 | MMI_CPU_INTEL, "c avx2 avx512", avx512 | MMI_CPU_INTEL);
    ck_paths(vnni | MMI_CPU_AVXVNNI, "c avx2 avxvnni avx512 vnni", vnni);
    ck_paths(vnni | MMI_CPU_AVXVNNI | MMI_CPU_INTEL, "c avx2 avxvnni avx512 vnni", vnni | MMI_CPU_INTEL);
    ck_paths(bf16, "c avx2 avx512 vnni bf16", bf16);
    ck_paths(intel, "c avx2 avx512 vnni bf16", intel);
    ck_paths(intel | MMI_CPU_AMX, "c avx2 avx512 vnni bf16 amx", intel | MMI_CPU_AMX);
}
END_TEST

#if MM_HAVE_BF16
/* Intel's make them half as fast as those of float32: its tables have one for a single row alone. */
START_TEST(products_of_bf16_for_many_rows_are_not_intels)
{
    const unsigned bf16 = MMI_CPU_AVX2 | MMI_CPU_AVX512 | MMI_CPU_VNNI | MMI_CPU_BF16;
    mmi_kernels amd, intel, without;
    mmi_kernels_init(&amd, bf16);
    mmi_kernels_init(&intel, bf16 | MMI_CPU_INTEL);
    mmi_kernels_init(&without, (bf16 ^ MMI_CPU_BF16) | MMI_CPU_INTEL);
    ck_assert(amd.gemm_multiply != without.gemm_multiply);
    ck_assert(intel.gemm_multiply == without.gemm_multiply);
    ck_assert(intel.gemm_pack_bf16 == without.gemm_pack_bf16);
    ck_assert(intel.gemm_rows == without.gemm_rows && intel.round_rows == without.round_rows);
    ck_assert(amd.gemm_rows != without.gemm_rows && amd.round_rows != without.round_rows);
    ck_assert(intel.gemv_row_rounded && amd.gemv_row_rounded && !without.gemv_row_rounded);
    ck_assert(intel.gemm_blocks != amd.gemm_blocks);
    ck_assert_int_eq(amd.gemv_ahead, 0);
    ck_assert_int_gt(intel.gemv_ahead, 0);
    ck_assert_int_eq(without.gemv_ahead, intel.gemv_ahead);
    ck_assert_int_eq(amd.round_attention, 1);
    ck_assert_int_eq(intel.round_attention, 0);
}
END_TEST
#endif

START_TEST(every_table_has_every_slot_and_the_name_of_its_path)
{
    for (int32_t i = 0; i < mmi_path_count(); i++) {
        const mmi_path *path = mmi_path_get(i);
        union {
            mmi_kernels k;
            void *slots[sizeof(mmi_kernels) / sizeof(void *)];
        } table;
        memset(&table, 0, sizeof table);
        mmi_kernels_init(&table.k, path->cpu);
        const size_t pack_blocks = offsetof(mmi_kernels, gemm_pack_blocks) / sizeof(void *);
        const size_t row = offsetof(mmi_kernels, gemv_row_rounded) / sizeof(void *);
        const size_t depth = offsetof(mmi_kernels, gemm_depth) / sizeof(void *); /* numbers from here */
        const size_t panel = offsetof(mmi_kernels, gemm_panel) / sizeof(void *); /* to here */
        ck_assert(table.k.gemm_depth > 0 && table.k.gemm_a_rows > 0 && table.k.gemm_b_cols > 0);
        for (size_t slot = 0; slot < offsetof(mmi_kernels, gemm_in_place) / sizeof(void *); slot++)
            if (slot != pack_blocks && slot != row && (slot < depth || slot >= panel))
                ck_assert_msg(table.slots[slot] != NULL, "%s: slot %d is empty", path->name, (int)slot);
        ck_assert_msg((table.slots[pack_blocks] != NULL) == (table.k.round_blocks > 0),
                      "%s: blocks are rounded from %d rows on", path->name, (int)table.k.round_blocks);
        ck_assert_msg((table.slots[row] != NULL) == ((path->cpu & MMI_CPU_BF16) != 0), "%s: a single row", path->name);
        ck_assert_int_le(table.k.few_rows, MMI_MOST_ROWS);
        ck_assert_int_le(table.k.few_rounded, MMI_MOST_ROWS);
        if (!path->blas)
            ck_assert_str_eq(table.k.name, path->name);
    }
}
END_TEST

START_TEST(mm_cpu_pretends_a_lesser_processor)
{
    unsetenv("MM_CPU");
    unsigned all = mmi_cpu_flags();
    setenv("MM_CPU", "c", 1);
    ck_assert_uint_eq(mmi_cpu_flags(), 0);
    ck_assert_str_eq(mm_kernels_name(0), "c");
    ck_assert_ptr_null(mmi_path_find("avx2"));
    ck_assert_ptr_null(mmi_path_find("neon"));
    ck_assert_ptr_nonnull(mmi_path_find(NULL));
    setenv("MM_CPU", "avx2", 1);
    ck_assert_uint_eq(mmi_cpu_flags(), all & (MMI_CPU_AVX2 | MMI_CPU_NEON));
    setenv("MM_CPU", "neon", 1);
    ck_assert_uint_eq(mmi_cpu_flags(), all & (MMI_CPU_AVX2 | MMI_CPU_NEON));
    setenv("MM_CPU", "avxvnni", 1);
    ck_assert_uint_eq(mmi_cpu_flags(), all & (MMI_CPU_AVX2 | MMI_CPU_AVXVNNI | MMI_CPU_NEON));
    setenv("MM_CPU", "avx512", 1);
    ck_assert_uint_eq(mmi_cpu_flags(), all & (MMI_CPU_AVX2 | MMI_CPU_AVX512 | MMI_CPU_INTEL | MMI_CPU_NEON));
    setenv("MM_CPU", "vnni", 1);
    ck_assert_uint_eq(mmi_cpu_flags(), all & ~(unsigned)(MMI_CPU_AVXVNNI | MMI_CPU_BF16 | MMI_CPU_AMX | MMI_CPU_DOT));
    setenv("MM_CPU", "bf16", 1);
    ck_assert_uint_eq(mmi_cpu_flags(), all & ~(unsigned)(MMI_CPU_AVXVNNI | MMI_CPU_AMX | MMI_CPU_DOT));
    setenv("MM_CPU", "amx", 1);
    ck_assert_uint_eq(mmi_cpu_flags(), all);
    setenv("MM_CPU", "a processor from the future", 1);
    ck_assert_uint_eq(mmi_cpu_flags(), all);
    unsetenv("MM_CPU");
}
END_TEST

static const char *const sets[] = { "avx512", "vnni", "bf16" };

START_TEST(mm_cpu_pretends_another_maker)
{
    char name[32];
    setenv("MM_CPU", sets[_i], 1);
    const unsigned set = mmi_cpu_flags(), intel = set & MMI_CPU_AVX512 ? MMI_CPU_INTEL : 0;
    setenv("MM_CPU", strcat(strcpy(name, sets[_i]), "-amd"), 1);
    ck_assert_uint_eq(mmi_cpu_flags(), set & ~(unsigned)MMI_CPU_INTEL);
    setenv("MM_CPU", strcat(strcpy(name, sets[_i]), "-intel"), 1);
    ck_assert_uint_eq(mmi_cpu_flags(), set | intel);
    unsetenv("MM_CPU");
}
END_TEST

/* Only AVX-512 has two; what is not known changes nothing. */
START_TEST(mm_cpu_knows_two_makers_and_what_they_make)
{
    static const char *const unknown[] = { "c-amd",     "avx2-intel", "neon-amd", "bf16-", "bf16-via",
                                           "bf16-amd ", "bf16amd",    "-amd",     "" };
    unsetenv("MM_CPU");
    const unsigned all = mmi_cpu_flags();
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        setenv("MM_CPU", unknown[i], 1);
        ck_assert_msg(mmi_cpu_flags() == all, "\"%s\" changes something", unknown[i]);
    }
    unsetenv("MM_CPU");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend/paths");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, paths_are_listed_slowest_first_and_found_by_name);
    tcase_add_test(tests, only_sets_that_bring_products_of_bytes_have_the_functions_of_the_path_before_them);
    tcase_add_test(tests, the_openblas_path_is_there_when_it_is_built_in);
    tcase_add_test(tests, paths_are_those_of_the_processor_and_its_maker);
#if MM_HAVE_BF16
    if (mmi_cpu_flags() & MMI_CPU_BF16) /* tables are filled by their own instructions */
        tcase_add_test(tests, products_of_bf16_for_many_rows_are_not_intels);
#endif
    tcase_add_test(tests, every_table_has_every_slot_and_the_name_of_its_path);
    tcase_add_test(tests, mm_cpu_pretends_a_lesser_processor);
    tcase_add_loop_test(tests, mm_cpu_pretends_another_maker, 0, sizeof sets / sizeof *sets);
    tcase_add_test(tests, mm_cpu_knows_two_makers_and_what_they_make);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
