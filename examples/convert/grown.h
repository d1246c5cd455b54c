/* Bytes that grow. */
#ifndef EXAMPLES_GROWN_H
#define EXAMPLES_GROWN_H

#include <stddef.h>
#include <stdint.h>

typedef struct grown {
    unsigned char *at; /* to be freed */
    size_t count, room;
} grown;

void put(grown *to, const void *from, size_t count);
void *put_room(grown *to, size_t count); /* `count` bytes to be written, until the next call */
void put_words(grown *to, const char *words);
void put_format(grown *to, const char *format, ...) __attribute__((format(printf, 2, 3))); /* 300 characters at most */
void put_little(grown *to, uint64_t number, int count); /* the lowest byte first */

#endif
