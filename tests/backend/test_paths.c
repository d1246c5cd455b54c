/* Which kernels a name, a processor and MM_CPU give. */
#define _POSIX_C_SOURCE 200809L
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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
        for (size_t slot = 0; slot < offsetof(mmi_kernels, gemm_in_place) / sizeof(void *); slot++)
            if (slot != pack_blocks)
                ck_assert_msg(table.slots[slot] != NULL, "%s: slot %d is empty", path->name, (int)slot);
        ck_assert_msg((table.slots[pack_blocks] != NULL) == (table.k.round_blocks > 0),
                      "%s: blocks are rounded from %d rows on", path->name, (int)table.k.round_blocks);
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
    ck_assert_uint_eq(mmi_cpu_flags(), all & (MMI_CPU_AVX2 | MMI_CPU_AVX512 | MMI_CPU_NEON));
    setenv("MM_CPU", "vnni", 1);
    ck_assert_uint_eq(mmi_cpu_flags(), all & ~(unsigned)(MMI_CPU_AVXVNNI | MMI_CPU_BF16 | MMI_CPU_AMX | MMI_CPU_DOT));
    setenv("MM_CPU", "bf16", 1);
    ck_assert_uint_eq(mmi_cpu_flags(), all & ~(unsigned)(MMI_CPU_AVXVNNI | MMI_CPU_AMX | MMI_CPU_DOT));
    setenv("MM_CPU", "amx", 1);
    ck_assert_uint_eq(mmi_cpu_flags(), all);
    setenv("MM_CPU", "a processor from the future", 1);
    ck_assert_uint_eq(mmi_cpu_flags(), all);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend/paths");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, paths_are_listed_slowest_first_and_found_by_name);
    tcase_add_test(tests, the_openblas_path_is_there_when_it_is_built_in);
    tcase_add_test(tests, every_table_has_every_slot_and_the_name_of_its_path);
    tcase_add_test(tests, mm_cpu_pretends_a_lesser_processor);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
