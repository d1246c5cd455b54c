/* Zips with nothing compressed in them, as torch.save() writes them; one is read at a time. */
#ifndef EXAMPLES_ZIP_H
#define EXAMPLES_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grown.h"

enum { ZIP_MOST = 65000 }; /* files, nearly: there is room for 65535 */

typedef struct zip_entry {
    const char *name;
    size_t name_length;
    const unsigned char *data;
    size_t size;
    uint32_t crc;
    bool checked; /* by its checksum */
} zip_entry;

typedef struct zip {
    const unsigned char *bytes;
    size_t size;
    zip_entry *entries; /* [count] */
    size_t count, next; /* behind the last one found: torch lists numbers as the pickle asks for them */
} zip;

/* The file, read whole. What is damaged ends the program with a message. */
zip zip_open(const char *path);
void zip_close(zip *z);

/* The one whose name ends so, NULL: there is none. What it holds must be what was put there. */
const zip_entry *zip_find(zip *z, const char *ending);

/* End the program with "path: what why" of the zip that was opened. */
_Noreturn void zip_refuse(const char *what, const char *why);

/* What has been written, for the list at the end; zeroed to begin with. */
typedef struct zip_writer {
    uint64_t written;
    grown listed;
    uint32_t count;
} zip_writer;

/* Put a file of that name, or the list, behind what whole_write() has got so far. */
void zip_write(zip_writer *w, const char *name, const void *bytes, uint64_t size);
void zip_end(zip_writer *w);

#endif
