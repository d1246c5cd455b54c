#include "grown.h"

#include "options.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *put_room(grown *to, size_t count)
{
    if (count > SIZE_MAX / 4 || to->room > SIZE_MAX / 4)
        need(NULL);
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
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof text)
        fail("a text is longer than it is foreseen: ", text);
    put_words(to, text);
}

void put_little(grown *to, uint64_t number, int count)
{
    for (int i = 0; i < count; i++)
        put(to, &(unsigned char){ (unsigned char)(number >> 8 * i) }, 1);
}
