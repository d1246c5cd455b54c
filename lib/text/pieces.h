/* The pre-tokenizer: cutting text into the pieces inside which bytes may merge. */
#ifndef MMI_TEXT_PIECES_H
#define MMI_TEXT_PIECES_H

#include "base/status.h"

typedef struct mmi_splitter mmi_splitter;

/* The GPT-2 pattern, compiled. Never changes afterwards: any number of threads may cut with it. */
mm_status mmi_splitter_create(mmi_splitter **out);
void mmi_splitter_free(mmi_splitter *splitter);

/* One cutting after another:
 *     mmi_pieces p;
 *     status = mmi_pieces_open(&p, splitter);
 *     mmi_pieces_start(&p, text, length);                      as often as there are stretches
 *     while ((status = mmi_pieces_next(&p, &piece, &size)) == MM_OK && size > 0) …
 *     mmi_pieces_close(&p);                                    fine on a zeroed struct too */
typedef struct mmi_pieces {
    const mmi_splitter *splitter;
    void *match;
    const char *text;
    size_t length, at;
} mmi_pieces;
mm_status mmi_pieces_open(mmi_pieces *p, const mmi_splitter *splitter);
void mmi_pieces_close(mmi_pieces *p);

/* `text` must be UTF-8 that was checked: the matcher trusts it. What stands outside of it is not looked at. */
void mmi_pieces_start(mmi_pieces *p, const char *text, size_t length);

/* The next piece, lent from the text; size 0 at its end. */
mm_status mmi_pieces_next(mmi_pieces *p, const char **piece, size_t *size);

#endif
