/* Structs that can grow: how options are read and results are written across versions. And arrays of the caller's. */
#ifndef MMI_BASE_OPTIONS_H
#define MMI_BASE_OPTIONS_H

#include <stddef.h>

#include "base/status.h"

/* `dst` holds this version's defaults and its own struct_size; take what the caller's struct has. Fields that an
 * older program lacks keep their defaults; a field that only a newer library knows must be zero. `src` NULL: defaults. */
mm_status mmi_options_read(void *dst, size_t known, const void *src, const char *what);

/* Give a result to the caller: as much of `src` as the caller's struct_size has room for, which stays as it is. */
mm_status mmi_result_write(void *dst, const void *src, size_t known, const char *what);

/* Could it be given? Before any work is done for it; nothing is written. */
mm_status mmi_result_check(const void *dst, const char *what);

/* Does an array of the caller's have room? `*needed`, unless NULL, is set to what there is; capacity 0 only asks for
 * that; too small a one is MM_ERR_ARG. `who` and the `units` are for the message. */
mm_status mmi_check_room(size_t *needed, size_t count, size_t capacity, const char *who, const char *units);

/* The same for bytes, which are then written. */
mm_status mmi_give_bytes(char *out, size_t capacity, size_t *needed, const char *bytes, size_t count, const char *who);

/* The body of mm_…_init(): the first `given` bytes of this version's defaults. */
void mmi_options_defaults(void *dst, size_t given, const void *defaults, size_t known);

/* Defines mm_…_init() from the MM_…_INIT macro, so that the two can't differ. */
#define MMI_OPTIONS_INIT(type, ...)                                                                                     \
    void type##_init(type *options, size_t struct_size)                                                                \
    {                                                                                                                   \
        const type defaults = __VA_ARGS__;                                                                              \
        mmi_options_defaults(options, struct_size, &defaults, sizeof defaults);                                        \
    }

#endif
