/* A 64-bit hash that notices damage: any change within one 8-byte word changes it, others all but surely. Not for
 * secrets. */
#ifndef MMI_DATA_HASH_H
#define MMI_DATA_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/json.h"

/* How the bytes are cut into calls makes no difference. */
typedef struct mmi_hash {
    uint64_t state;
    uint64_t length; /* bytes so far */
    uint64_t word;   /* the last length % 8 of them, which wait for their word to be full */
} mmi_hash;

void mmi_hash_begin(mmi_hash *hash);
void mmi_hash_add(mmi_hash *hash, const void *data, size_t size);
uint64_t mmi_hash_end(const mmi_hash *hash);

/* Of a whole file, read piece by piece. */
mm_status mmi_hash_file(uint64_t *hash, int64_t *bytes, const char *path);

/* As 16 hexadecimal digits with their NUL: JSON's integers stop at 63 bits. */
#define MMI_HASH_TEXT 17
void mmi_hash_text(char text[MMI_HASH_TEXT], uint64_t hash);
bool mmi_hash_set(mmi_json *object, const char *key, uint64_t hash);

#endif
