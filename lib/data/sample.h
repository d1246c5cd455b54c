/* One row read: from a line of a file to ids and which of them are learnt, for each kind of row. */
#ifndef MMI_DATA_SAMPLE_H
#define MMI_DATA_SAMPLE_H

#include "data/dataset.h"
#include "data/marks.h"
#include "text/chat_template.h"
#include "text/chat_text.h"

/* Ids of a row, or of one side of a preference row. */
typedef struct mmi_sequence {
    int32_t *ids;
    unsigned char *marks; /* [count] 1: learnt. Conversations only */
    size_t count; /* text: all ids; conversations: max_length, padded, or all when packing; prompts: the last ones */
    size_t total; /* ids of the row before cutting and padding, bos and eos included */
    size_t id_room, mark_room;
} mmi_sequence;

/* Zeroed, it is ready to be read into, again and again. */
typedef struct mmi_sample {
    mmi_sequence side[2]; /* [1] is the rejected answer of a preference row */
    char *answer;         /* of a prompt: the reference, NUL-terminated; may hold more NULs */
    size_t answer_length, answer_room;
    bool has_answer;
    bool uneven; /* roles do not alternate */
} mmi_sample;
void mmi_sample_free(mmi_sample *sample);

/* Room that reading needs; zeroed, it is ready. One per thread. */
typedef struct mmi_desk {
    mmi_line line;
    mmi_chat_text text; /* what was encoded last */
} mmi_desk;
void mmi_desk_free(mmi_desk *desk);

/* How rows are read: the options, and what follows from them and the tokenizer. */
typedef struct mmi_recipe {
    const mm_tokenizer *tokenizer;
    mm_loader_options options;
    mmi_chat_form form; /* conversations: which template */
    mmi_frame frame;
} mmi_recipe;

/* `options` are checked already, but for what depends on the tokenizer: MM_ERR_ARG, no such template; MM_ERR_STATE and
 * MM_ERR_UNSUPPORTED as mm_chat_template_name(). */
mm_status mmi_recipe_make(mmi_recipe *recipe, const mm_tokenizer *tokenizer, const mm_loader_options *options);

/* Sequences in a sample: 2 for preference rows. */
int mmi_recipe_sides(const mmi_recipe *recipe);

/* Row `row` of the data set. MM_ERR_FORMAT: a bad line, told by file and line. */
mm_status mmi_sample_read(mmi_sample *sample, mmi_desk *desk, const mmi_recipe *recipe, const mm_dataset *dataset,
                          int64_t row);

/* The same of a row at hand, which may be changed on the way; messages have no file and line. */
mm_status mmi_sample_take(mmi_sample *sample, mmi_desk *desk, const mmi_recipe *recipe, mmi_json *row);

/* The conversation `key` of a row as text into desk->text, ready for encoding. */
mm_status mmi_recipe_render(mmi_desk *desk, const mmi_recipe *recipe, mmi_json *row, const char *key);

#endif
