#define _POSIX_C_SOURCE 200809L

#include "image.h"

#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A name that JSON would have to write otherwise is none that a weight has, nor is one without end, which a file may have
 * once for any number of tensors; the library has the same bound. */
bool image_describe(image *to, const char *name, const char *dtype, const int64_t *shape, size_t rank, uint64_t size)
{
    grown *header = &to->header;
    const uint64_t begin = to->numbers.count;
    if (strlen(name) > 512)
        return false;
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == '"' || *c == '\\' || *c == 0x7f)
            return false;
    put_words(header, header->count > 0 ? ",\"" : "{\"");
    put_words(header, name);
    put_format(header, "\":{\"dtype\":\"%s\",\"shape\":[", dtype);
    for (size_t i = 0; i < rank; i++)
        put_format(header, i > 0 ? ",%" PRId64 : "%" PRId64, shape[i]);
    put_format(header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, begin + size);
    return true;
}

/* What the library said, with `file` in place of the name that it knew. */
static _Noreturn void refuse(const char *file, const char *known)
{
    char message[1024];
    const char *why = mm_last_error();
    const size_t length = strlen(known);
    bool begins = strncmp(why, known, length) == 0 && strncmp(why + length, ": ", 2) == 0;
    snprintf(message, sizeof message, "%.300s: %.700s", file, begins ? why + length + 2 : why);
    fail_plainly(message);
}

/* All its bytes, to be freed; the image is. */
static grown finished(image *from)
{
    grown whole = { NULL, 0, 0 };
    put_words(&from->header, from->header.count > 0 ? "}" : "{}");
    while (from->header.count % 8 != 0)
        put_words(&from->header, " ");
    put_little(&whole, from->header.count, 8);
    put(&whole, from->header.at, from->header.count);
    put(&whole, from->numbers.at, from->numbers.count);
    free(from->header.at);
    free(from->numbers.at);
    return whole;
}

mm_model *image_model(image *from, const char *file, const mm_config *config, int32_t dtype)
{
    grown whole = finished(from);
    mm_model *model = NULL, *stored = NULL;
    if (mm_model_load_memory(config, whole.at, whole.count, &model) != MM_OK)
        refuse(file, "safetensors image");
    free(whole.at);
    if (dtype != MM_BF16 && dtype != MM_F16)
        return model;
    check(mm_model_cast(model, dtype, &stored)); /* they have been that: nothing is rounded */
    mm_model_free(model);
    return stored;
}

/* The library reads adapters from files. */
mm_adapter *image_adapter(image *from, const char *file, mm_model *model)
{
    char path[4096];
    mm_adapter *adapter = NULL;
    grown whole = finished(from);
    snprintf(path, sizeof path, "%s/minimind-XXXXXX", temporary_place());
    int descriptor = mkstemp(path);
    FILE *out = descriptor < 0 ? NULL : fdopen(descriptor, "wb");
    bool written = out && fwrite(whole.at, 1, whole.count, out) == whole.count;
    if (out)
        written = fclose(out) == 0 && written;
    const int why = errno;
    mm_status status = written ? mm_adapter_load(model, path, &adapter) : MM_OK;
    if (descriptor >= 0)
        unlink(path);
    errno = why;
    if (!written)
        fail_to_write(path);
    if (status != MM_OK)
        refuse(file, path);
    free(whole.at);
    return adapter;
}
