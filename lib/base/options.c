#include "base/options.h"

#include <string.h>

static mm_status read_size(const void *src, size_t *given, const char *what)
{
    memcpy(given, src, sizeof *given);
    /* An uninitialised struct is likelier than one of a megabyte; and one that ends within a pointer is nobody's: what
     * has a size_t is aligned like it, so its size is a multiple. */
    if (*given < sizeof(size_t) || *given > 65536 || *given % sizeof(size_t) != 0)
        return mmi_fail(MM_ERR_ARG,
                        "%s: struct_size is %zu, not sizeof(%s); an INIT macro or _init(), where there is one, sets it",
                        what, *given, what);
    return MM_OK;
}

mm_status mmi_options_read(void *dst, size_t known, const void *src, const char *what)
{
    if (!src)
        return MM_OK;
    size_t given;
    mm_status status = read_size(src, &given, what);
    if (status != MM_OK)
        return status;
    const unsigned char *bytes = src;
    for (size_t i = known; i < given; i++)
        if (bytes[i] != 0)
            return mmi_fail(MM_ERR_UNSUPPORTED, "%s: a field newer than this library is set", what);
    memcpy((unsigned char *)dst + sizeof(size_t), bytes + sizeof(size_t),
           (given < known ? given : known) - sizeof(size_t));
    return MM_OK;
}

static mm_status read_result_size(const void *dst, size_t *given, const char *what)
{
    if (!dst)
        return mmi_fail(MM_ERR_ARG, "%s: the pointer for the result is NULL", what);
    return read_size(dst, given, what);
}

mm_status mmi_result_check(const void *dst, const char *what)
{
    size_t given;
    return read_result_size(dst, &given, what);
}

mm_status mmi_result_write(void *dst, const void *src, size_t known, const char *what)
{
    size_t given = 0; /* GCC at -O2 does not see that a size which was not read is not used */
    mm_status status = read_result_size(dst, &given, what);
    if (status != MM_OK)
        return status;
    unsigned char *bytes = dst;
    memcpy(bytes + sizeof(size_t), (const unsigned char *)src + sizeof(size_t),
           (given < known ? given : known) - sizeof(size_t));
    if (given > known)
        memset(bytes + known, 0, given - known);
    return MM_OK;
}

mm_status mmi_check_room(size_t *needed, size_t count, size_t capacity, const char *who, const char *units)
{
    if (needed)
        *needed = count;
    if (capacity == 0 || count <= capacity)
        return MM_OK;
    return mmi_fail(MM_ERR_ARG, "%s: there are %zu %s, there is room for %zu", who, count, units, capacity);
}

mm_status mmi_give_bytes(char *out, size_t capacity, size_t *needed, const char *bytes, size_t count, const char *who)
{
    mm_status status = mmi_check_room(needed, count, capacity, who, "bytes");
    if (status == MM_OK && capacity > 0 && count > 0)
        memcpy(out, bytes, count);
    return status;
}

void mmi_options_defaults(void *dst, size_t given, const void *defaults, size_t known)
{
    if (!dst || given < sizeof(size_t))
        return;
    memcpy(dst, defaults, given < known ? given : known);
    if (given > known)
        memset((unsigned char *)dst + known, 0, given - known);
    memcpy(dst, &given, sizeof given);
}
