#include "image.h"

#include "options.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *put_room(grown *to, size_t count)
{
    if (to->room - to->count < count)
        to->at = need(realloc(to->at, to->room = 2 * to->room + count));
    to->count += count;
    return to->at + to->count - count;
}

void put(grown *to, const void *from, size_t count)
{
    if (count > 0)
        memcpy(put_room(to, count), from, count);
}

void put_words(grown *to, const char *words)
{
    put(to, words, strlen(words));
}

void put_format(grown *to, const char *format, ...)
{
    char text[301];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put_words(to, text);
}

void put_little(grown *to, uint64_t number, int count)
{
    for (int i = 0; i < count; i++)
        put(to, &(unsigned char){ (unsigned char)(number >> 8 * i) }, 1);
}

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

mm_model *image_model(image *from, const char *file, const mm_config *config, int32_t dtype)
{
    static const char image_name[] = "safetensors image: ";
    grown whole = { NULL, 0, 0 };
    mm_model *model = NULL, *stored = NULL;
    put_words(&from->header, from->header.count > 0 ? "}" : "{}");
    while (from->header.count % 8 != 0)
        put_words(&from->header, " ");
    put_little(&whole, from->header.count, 8);
    put(&whole, from->header.at, from->header.count);
    put(&whole, from->numbers.at, from->numbers.count);
    free(from->header.at);
    free(from->numbers.at);
    if (mm_model_load_memory(config, whole.at, whole.count, &model) != MM_OK) {
        char message[1024];
        const char *why = mm_last_error();
        why += strncmp(why, image_name, sizeof image_name - 1) == 0 ? sizeof image_name - 1 : 0;
        snprintf(message, sizeof message, "%.300s: %.700s", file, why);
        fail(message, "");
    }
    free(whole.at);
    if (dtype != MM_BF16 && dtype != MM_F16)
        return model;
    check(mm_model_cast(model, dtype, &stored)); /* they have been that: nothing is rounded */
    mm_model_free(model);
    return stored;
}
