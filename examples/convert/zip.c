/* A zip is its files, each behind a record of its own, then a list of them, and at the end a record of where that list
 * begins (PKWARE's APPNOTE, 4.3). Numbers are little-endian. */
#include "zip.h"

#include "options.h"
#include "whole.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *file; /* for messages */

void zip_refuse(const char *what, const char *why)
{
    char message[1024];
    snprintf(message, sizeof message, "%.300s: %.300s%s", file, what, why);
    fail_plainly(message);
}

enum { LOCAL = 0x04034b50, LISTED = 0x02014b50, END = 0x06054b50, LOCAL_BYTES = 30, LISTED_BYTES = 46, END_BYTES = 22 };

static uint32_t number_at(const unsigned char *at, int bytes)
{
    uint32_t number = 0;
    for (int i = bytes; i-- > 0;)
        number = number << 8 | at[i];
    return number;
}

/* CRC-32. */
static uint32_t crc_of(const unsigned char *bytes, size_t size)
{
    static uint32_t table[256];
    uint32_t crc = ~0u;
    for (uint32_t i = 0; table[255] == 0 && i < 256; i++) {
        uint32_t rest = i;
        for (int bit = 0; bit < 8; bit++)
            rest = rest >> 1 ^ (rest & 1 ? 0xedb88320u : 0);
        table[i] = rest;
    }
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 255];
    return ~crc;
}

static const unsigned char *find_end(const zip *z)
{
    for (size_t back = END_BYTES; back <= z->size && back <= END_BYTES + 65535; back++) /* a comment may follow */
        if (number_at(z->bytes + z->size - back, 4) == END)
            return z->bytes + z->size - back;
    zip_refuse("", "is cut short: the list at the end of its zip is missing");
}

/* The listed file at `at`, and where the next one is listed. */
static const unsigned char *read_listed(const zip *z, const unsigned char *at, zip_entry *out)
{
    const size_t left = z->size - (size_t)(at - z->bytes);
    if (left < LISTED_BYTES || number_at(at, 4) != LISTED)
        zip_refuse("", "has a damaged zip");
    const size_t name = number_at(at + 28, 2), extra = number_at(at + 30, 2), comment = number_at(at + 32, 2);
    const size_t size = number_at(at + 24, 4), begin = number_at(at + 42, 4);
    if (left - LISTED_BYTES < name + extra + comment)
        zip_refuse("", "has a damaged zip");
    if (number_at(at + 10, 2) != 0 || number_at(at + 20, 4) != size)
        zip_refuse("", "has compressed files in its zip, which torch.save() does not write");
    if (size == UINT32_MAX || begin == UINT32_MAX)
        zip_refuse("", "has more than 4 GB, which is more than is read here");
    const unsigned char *local = z->bytes + begin;
    if (begin > z->size || z->size - begin < LOCAL_BYTES || number_at(local, 4) != LOCAL)
        zip_refuse("", "has a damaged zip");
    const size_t before = LOCAL_BYTES + number_at(local + 26, 2) + number_at(local + 28, 2);
    if (z->size - begin < before || z->size - begin - before < size)
        zip_refuse("", "has a damaged zip");
    *out = (zip_entry){ (const char *)at + LISTED_BYTES, name, local + before, size, number_at(at + 16, 4), false };
    return at + LISTED_BYTES + name + extra + comment;
}

/* Files that lie in one another would take longer to check than they are long. */
zip zip_open(const char *path)
{
    file = path;
    FILE *opened = fopen(path, "rb");
    size_t size = 0;
    const unsigned char *bytes = opened ? (unsigned char *)read_all(opened, path, &size) : NULL;
    if (!bytes)
        zip_refuse("can't be read: ", strerror(errno));
    if (size < END_BYTES || number_at(bytes, 4) != LOCAL)
        zip_refuse("", "is not what torch.save() writes, which is a zip since PyTorch 1.6");
    zip z = { bytes, size, NULL, 0, 0 };
    const unsigned char *end = find_end(&z);
    const size_t count = number_at(end + 10, 2), begin = number_at(end + 16, 4);
    if ((size_t)(end - bytes) < begin)
        zip_refuse("", "has a damaged zip");
    z.entries = need(calloc(count + 1, sizeof *z.entries));
    const unsigned char *at = bytes + begin;
    uint64_t together = 0;
    for (; z.count < count; together += z.entries[z.count++].size)
        at = read_listed(&z, at, &z.entries[z.count]);
    if (together > size)
        zip_refuse("", "has a damaged zip");
    return z;
}

const zip_entry *zip_find(zip *z, const char *ending)
{
    const size_t length = strlen(ending);
    for (size_t i = 0; i < z->count; i++) {
        const size_t place = (z->next + i) % z->count;
        zip_entry *e = &z->entries[place];
        if (e->name_length < length || memcmp(e->name + e->name_length - length, ending, length) != 0)
            continue;
        if (!e->checked && crc_of(e->data, e->size) != e->crc)
            zip_refuse(ending, " is damaged: its checksum is another one");
        e->checked = true; /* many tensors may share it */
        z->next = place + 1;
        return e;
    }
    return NULL;
}

void zip_close(zip *z)
{
    free((void *)z->bytes);
    free(z->entries);
}

/* --- Writing --- */

/* What the record of a file, there and in the list, has in common. */
static void put_record(grown *to, uint32_t crc, uint64_t size, size_t name, size_t extra)
{
    put_little(to, 0, 2);      /* flags */
    put_little(to, 0, 2);      /* stored */
    put_little(to, 0, 2);      /* midnight */
    put_little(to, 0x21, 2);   /* of 1980-01-01, the first day there is: the same model is the same bytes */
    put_little(to, crc, 4);
    put_little(to, size, 4);
    put_little(to, size, 4);
    put_little(to, name, 2);
    put_little(to, extra, 2);
}

/* torch has numbers begin at a multiple of 64; what lies before them is a field that nobody reads, as it does it. */
void zip_write(zip_writer *w, const char *name, const void *bytes, uint64_t size)
{
    enum { ALIGNMENT = 64, FIELD = 4 };
    const size_t length = strlen(name);
    const size_t extra = FIELD + (size_t)(ALIGNMENT - (w->written + LOCAL_BYTES + length + FIELD) % ALIGNMENT) % ALIGNMENT;
    const uint32_t crc = crc_of(bytes, (size_t)size);
    static const unsigned char zeros[ALIGNMENT];
    grown local = { NULL, 0, 0 };
    if (w->written + size + 65536 > UINT32_MAX)
        whole_fail("a .pth of more than 4 GB is not written here");
    put_little(&local, LOCAL, 4);
    put_little(&local, 20, 2); /* version 2.0 can read it */
    put_record(&local, crc, size, length, extra);
    put(&local, name, length);
    put(&local, "FB", 2);
    put_little(&local, extra - FIELD, 2);
    put(&local, zeros, extra - FIELD);

    put_little(&w->listed, LISTED, 4);
    put_little(&w->listed, 20, 2);
    put_little(&w->listed, 20, 2);
    put_record(&w->listed, crc, size, length, 0);
    put_little(&w->listed, 0, 2);  /* comment */
    put_little(&w->listed, 0, 2);  /* disk */
    put_little(&w->listed, 0, 2);  /* attributes */
    put_little(&w->listed, 0, 4);
    put_little(&w->listed, w->written, 4);
    put(&w->listed, name, length);

    whole_write(local.at, local.count);
    whole_write(bytes, (size_t)size);
    w->written += local.count + size;
    w->count++;
    free(local.at);
}

void zip_end(zip_writer *w)
{
    grown end = { NULL, 0, 0 };
    put_little(&end, END, 4);
    put_little(&end, 0, 4); /* disks */
    put_little(&end, w->count, 2);
    put_little(&end, w->count, 2);
    put_little(&end, w->listed.count, 4);
    put_little(&end, w->written, 4);
    put_little(&end, 0, 2); /* comment */
    whole_write(w->listed.at, w->listed.count);
    whole_write(end.at, end.count);
    free(w->listed.at);
    free(end.at);
}
