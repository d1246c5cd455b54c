/* What the files that read a tokenizer's files share. */
#ifndef MMI_TEXT_LOAD_H
#define MMI_TEXT_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "text/tokenizer.h"

/* MM_ERR_FORMAT: what was found at a place in a file, and what may stand there. */
mm_status mmi_load_wrong_kind(const char *where, const mmi_json *found, const char *allowed);

/* `object`[key] is `wanted`, or absent where that means the same. */
mm_status mmi_load_check_flag(const mmi_json *object, const char *where, const char *key, bool wanted, bool fallback);

/* What an added token may ask for beside being found as it is, and is not done here. */
mm_status mmi_load_check_wishes(const mmi_json *token, const char *where);

/* And what is done, where a key is true. */
enum { MMI_LOAD_KINDS = 2 };
typedef struct mmi_load_kind {
    char key[12];
    uint32_t bit; /* MMI_TOKEN_… */
} mmi_load_kind;
extern const mmi_load_kind mmi_load_kinds[MMI_LOAD_KINDS];

/* MMI_TOKEN_ADDED, and those that the token says it is. */
uint32_t mmi_load_kind_of(const mmi_json *token);

/* An added token as both files describe it, but for its id. */
mm_status mmi_load_check_added(const mmi_json *token, const char *where);

/* Check tokenizer_config.json at `path`, and keep its text as it is: saving writes it back. *config stays NULL where
 * there is none. */
mm_status mmi_load_config(mmi_json **config, mm_tokenizer *tokenizer, const char *path);

#endif
