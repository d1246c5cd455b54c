#include "data/sample.h"

#include <string.h>

#include "base/memory.h"
#include "data/answers.h"
#include "data/messages.h"
#include "text/chat.h"

/* Rooms beyond this are given back once their row is done with. */
#define LARGE ((size_t)1 << 22)

void mmi_sample_free(mmi_sample *sample)
{
    for (int i = 0; i < 2; i++) {
        mmi_free(sample->side[i].ids);
        mmi_free(sample->side[i].marks);
    }
    mmi_free(sample->answer);
    memset(sample, 0, sizeof *sample);
}

void mmi_desk_free(mmi_desk *desk)
{
    mmi_line_free(&desk->line);
    mmi_chat_text_free(&desk->text);
    memset(desk, 0, sizeof *desk);
}

/* --- The recipe --- */

static mm_status encode_mark(int32_t *ids, size_t *count, const mm_tokenizer *tokenizer, const char *text)
{
    return mm_encode(tokenizer, text, strlen(text), MM_SPLIT_ALL, ids, MMI_MARK_IDS, count);
}

static mm_status find_frame(mmi_recipe *r)
{
    bool third = r->form == MMI_CHAT_MINIMIND3;
    mmi_frame *f = &r->frame;
    f->late = !third;
    mm_status status =
        encode_mark(f->head, &f->head_count, r->tokenizer, third ? "<|im_start|>assistant\n" : "<|im_start|>assistant");
    if (status == MM_OK)
        status = encode_mark(f->tail, &f->tail_count, r->tokenizer, third ? "<|im_end|>\n" : "<|im_end|>");
    return status;
}

mm_status mmi_recipe_make(mmi_recipe *r, const mm_tokenizer *tokenizer, const mm_loader_options *options)
{
    memset(r, 0, sizeof *r);
    r->tokenizer = tokenizer;
    r->options = *options;
    r->options.template_name = NULL; /* the caller's string may go */
    r->form = MMI_CHAT_NONE;
    if (options->kind == MM_ROW_TEXT)
        return MM_OK;
    const char *name = options->template_name;
    mm_status status = name ? MM_OK : mm_chat_template_name(tokenizer, &name);
    if (status != MM_OK)
        return status;
    r->form = mmi_chat_form_by_name(name);
    if (r->form == MMI_CHAT_NONE)
        return mmi_fail(MM_ERR_ARG, "loader: template_name is \"%s\"; minimind2, minimind3 and minillm are known",
                        name);
    r->options.template_name = mmi_chat_form_name(r->form);
    return find_frame(r);
}

int mmi_recipe_sides(const mmi_recipe *r)
{
    return r->options.kind == MM_ROW_PREFERENCE ? 2 : 1;
}

/* --- Text to ids --- */

/* The ids of `text` behind `before` free places, with room for `after` more. Most rows fit into the room that earlier
 * ones left; for the others the ids are counted first, as a guess by bytes would take four times a long line. */
static mm_status encode(mmi_sequence *s, size_t *count, const mm_tokenizer *tokenizer, const char *text, size_t length,
                        size_t before, size_t after)
{
    *count = 0;
    if (!mmi_grow(&s->ids, &s->id_room, before + after + 64, sizeof *s->ids))
        return mmi_fail_memory((before + after + 64) * sizeof *s->ids, "the ids of a row");
    if (length == 0)
        return MM_OK;
    size_t room = s->id_room - before - after;
    mm_status status = mm_encode(tokenizer, text, length, MM_SPLIT_ALL, s->ids + before, room, count);
    if (status == MM_ERR_ARG && *count > room) {
        if (!mmi_grow(&s->ids, &s->id_room, before + *count + after, sizeof *s->ids))
            return mmi_fail_memory(*count * sizeof *s->ids, "the ids of a row");
        status = mm_encode(tokenizer, text, length, MM_SPLIT_ALL, s->ids + before, *count, count);
    }
    return status == MM_ERR_ARG ? MM_ERR_FORMAT : status; /* it is the file's fault, not the caller's */
}

static mm_status take_text(mmi_sample *sample, const mmi_recipe *r, const mmi_json *row)
{
    const mm_loader_options *o = &r->options;
    mmi_sequence *s = &sample->side[0];
    const char *text = NULL;
    size_t length = 0, count = 0;
    bool packed = o->form == MM_ROWS_PACK;
    size_t before = packed && o->bos_id >= 0, after = packed && o->eos_id >= 0;
    mm_status status = mmi_row_string(&text, &length, row, "text");
    if (status == MM_OK)
        status = encode(s, &count, r->tokenizer, text, length, before, after);
    if (status != MM_OK)
        return status;
    if (before)
        s->ids[0] = o->bos_id;
    if (after)
        s->ids[before + count] = o->eos_id;
    s->count = s->total = before + count + after;
    if (o->form == MM_ROWS_PAD3) /* they are put on when the row is laid out */
        s->total += (size_t)(o->bos_id >= 0) + (size_t)(o->eos_id >= 0);
    return MM_OK;
}

/* --- Conversations --- */

/* Take every occurrence of an empty think block out of the text. */
static void strip_empty_think(mmi_chat_text *text)
{
    static const char block[] = "<think>\n\n</think>\n\n";
    const size_t size = sizeof block - 1;
    mmi_slice rest = { text->bytes, text->length };
    size_t kept = 0, at;
    while (mmi_slice_find(&at, rest, MMI_SLICE(block))) {
        memmove(text->bytes + kept, rest.at, at);
        kept += at;
        rest = mmi_slice_from(rest, at + size);
    }
    if (rest.length > 0)
        memmove(text->bytes + kept, rest.at, rest.length);
    text->length = kept + rest.length;
}

static mm_status render(mmi_desk *desk, const mmi_recipe *r, const mm_chat *chat, bool prompt)
{
    mm_chat_options o = MM_CHAT_OPTIONS_INIT;
    o.template_name = r->options.template_name;
    o.add_generation_prompt = prompt;
    o.thinking = prompt ? r->options.thinking : MM_THINK_DEFAULT;
    desk->text.length = desk->text.own_count = 0;
    desk->text.failed = false;
    mm_status status = mmi_chat_render(&desk->text, chat, r->tokenizer, &o);
    if (status == MM_OK)
        status = mmi_chat_text_status(&desk->text);
    if (status == MM_OK && r->options.strip_empty_think && !prompt)
        strip_empty_think(&desk->text);
    return status == MM_ERR_ARG ? MM_ERR_FORMAT : status;
}

mm_status mmi_recipe_render(mmi_desk *desk, const mmi_recipe *r, mmi_json *row, const char *key)
{
    mm_chat *chat = NULL;
    mm_status status = mm_chat_create(&chat);
    if (status == MM_OK)
        status = mmi_messages_read(chat, mmi_json_get(row, key), r->form, r->options.kind == MM_ROW_PREFERENCE, key);
    if (status == MM_OK)
        status = render(desk, r, chat, false);
    mm_chat_free(chat);
    return status;
}

/* Cut and pad to max_length, unless rows are packed, then mark what is learnt. */
static mm_status finish_conversation(mmi_sequence *s, const mmi_recipe *r)
{
    size_t width = (size_t)r->options.max_length;
    s->count = s->total;
    if (r->options.form != MM_ROWS_PACK) {
        if (!mmi_grow(&s->ids, &s->id_room, width, sizeof *s->ids))
            return mmi_fail_memory(width * sizeof *s->ids, "the ids of a row");
        for (size_t t = s->total; t < width; t++)
            s->ids[t] = r->options.pad_id;
        s->count = width;
    }
    if (!mmi_grow(&s->marks, &s->mark_room, s->count, 1))
        return mmi_fail_memory(s->count, "the marks of a row");
    mmi_marks_find(s->marks, s->ids, s->count, &r->frame);
    return MM_OK;
}

static mm_status take_conversation(mmi_sample *sample, int side, mmi_desk *desk, const mmi_recipe *r, mmi_json *row,
                                   const char *key)
{
    mmi_sequence *s = &sample->side[side];
    bool by_position = r->form == MMI_CHAT_MINIMIND2 && r->options.kind != MM_ROW_PREFERENCE;
    mm_status status = mmi_recipe_render(desk, r, row, key);
    if (status == MM_OK)
        status = encode(s, &s->total, r->tokenizer, desk->text.bytes, desk->text.length, 0, 0);
    if (status == MM_OK)
        status = finish_conversation(s, r);
    sample->uneven |= status == MM_OK && !mmi_messages_alternate(mmi_json_get(row, key), by_position);
    return status;
}

/* --- Prompts --- */

static mm_status keep_answer(mmi_sample *sample, mmi_slice answer)
{
    if (!mmi_grow(&sample->answer, &sample->answer_room, answer.length + 1, 1))
        return mmi_fail_memory(answer.length + 1, "an answer");
    if (answer.length > 0)
        memcpy(sample->answer, answer.at, answer.length);
    sample->answer[answer.length] = '\0';
    sample->answer_length = answer.length;
    sample->has_answer = true;
    return MM_OK;
}

/* The last turn is left out if it is the assistant's; its text, if there is one, is the reference answer. */
static mm_status split_conversation(mmi_sample *sample, mm_chat *chat)
{
    size_t last = chat->count - 1, length = 0;
    if (!mmi_chat_role_is(chat, last, "assistant"))
        return MM_OK;
    const char *text = mmi_json_string(mmi_json_get(chat->messages[last], "content"), &length);
    mm_status status = text ? keep_answer(sample, (mmi_slice){ text, length }) : MM_OK;
    return status == MM_OK ? mm_chat_truncate(chat, last) : status;
}

static mm_status read_question(mmi_sample *sample, mm_chat *chat, const mmi_json *row)
{
    const char *question = NULL, *answer = NULL;
    size_t question_length = 0, answer_length = 0;
    mm_status status = mmi_row_string(&question, &question_length, row, "question");
    if (status == MM_OK)
        status = mmi_row_string(&answer, &answer_length, row, "answer");
    if (status == MM_OK)
        status = mm_chat_add(chat, "user", question, question_length);
    if (status == MM_OK)
        status = keep_answer(sample, mmi_answer_of((mmi_slice){ answer, answer_length }));
    if (status == MM_OK)
        sample->answer_length = mmi_answer_without_commas(sample->answer, sample->answer_length);
    return status;
}

static mm_status read_prompt(mmi_sample *sample, mm_chat *chat, const mmi_recipe *r, mmi_json *row)
{
    mmi_json *list = mmi_json_get(row, "conversations");
    if (!list && mmi_json_get(row, "question"))
        return read_question(sample, chat, row);
    mm_status status = mmi_messages_read(chat, list, r->form, false, "conversations");
    if (status == MM_OK)
        sample->uneven = !mmi_messages_alternate(list, r->form == MMI_CHAT_MINIMIND2);
    return status == MM_OK ? split_conversation(sample, chat) : status;
}

/* Of a prompt that is too long the last ids are kept, as upstream: the opening of the answer's turn is among them. */
static void cut_prompt(mmi_sequence *s, size_t most)
{
    s->count = s->total < most ? s->total : most;
    memmove(s->ids, s->ids + (s->total - s->count), s->count * sizeof *s->ids);
}

static mm_status take_prompt(mmi_sample *sample, mmi_desk *desk, const mmi_recipe *r, mmi_json *row)
{
    mmi_sequence *s = &sample->side[0];
    mm_chat *chat = NULL;
    mm_status status = mm_chat_create(&chat);
    if (status == MM_OK)
        status = read_prompt(sample, chat, r, row);
    if (status == MM_OK)
        status = render(desk, r, chat, true);
    if (status == MM_OK)
        status = encode(s, &s->total, r->tokenizer, desk->text.bytes, desk->text.length, 0, 0);
    if (status == MM_OK && s->total == 0)
        status = mmi_fail(MM_ERR_FORMAT, "the prompt is empty");
    if (status == MM_OK)
        cut_prompt(s, (size_t)r->options.max_length);
    mm_chat_free(chat);
    return status;
}

/* --- A row --- */

/* One very long row must not hold its memory for ever. */
static void shrink(mmi_sample *sample, mmi_desk *desk)
{
    bool large = sample->answer_room > LARGE;
    for (int i = 0; i < 2; i++)
        large |= sample->side[i].id_room > LARGE || sample->side[i].mark_room > LARGE;
    if (large)
        mmi_sample_free(sample);
    if (desk->line.capacity > LARGE || desk->text.room > LARGE)
        mmi_desk_free(desk);
}

/* Both answers of a pair are to the same conversation: all turns but the last are the same. */
static mm_status check_pair(const mmi_json *chosen, const mmi_json *rejected)
{
    size_t count = mmi_json_size(chosen), turns = count > 0 ? count - 1 : 0;
    if (mmi_json_what(chosen) != MMI_JSON_ARRAY || mmi_json_what(rejected) != MMI_JSON_ARRAY)
        return MM_OK; /* told of elsewhere */
    bool same = mmi_json_size(rejected) == count;
    for (size_t i = 0; i < turns && same; i++)
        same = mmi_json_equal(mmi_json_at(chosen, i), mmi_json_at(rejected, i));
    return same ? MM_OK :
                  mmi_fail(MM_ERR_FORMAT,
                           "\"chosen\" and \"rejected\" answer different prompts: they must be equal but for "
                           "their last message");
}

mm_status mmi_sample_take(mmi_sample *sample, mmi_desk *desk, const mmi_recipe *r, mmi_json *row)
{
    sample->has_answer = sample->uneven = false;
    sample->answer_length = 0;
    switch (r->options.kind) {
    case MM_ROW_TEXT:
        return take_text(sample, r, row);
    case MM_ROW_CHAT:
        return take_conversation(sample, 0, desk, r, row, "conversations");
    case MM_ROW_PROMPT:
        return take_prompt(sample, desk, r, row);
    default: {
        mm_status status = MM_OK;
        if (!r->options.mixed_prompts)
            status = check_pair(mmi_json_get(row, "chosen"), mmi_json_get(row, "rejected"));
        if (status == MM_OK)
            status = take_conversation(sample, 0, desk, r, row, "chosen");
        return status == MM_OK ? take_conversation(sample, 1, desk, r, row, "rejected") : status;
    }
    }
}

mm_status mmi_sample_read(mmi_sample *sample, mmi_desk *desk, const mmi_recipe *r, const mm_dataset *dataset,
                          int64_t row)
{
    mmi_json *object = NULL;
    shrink(sample, desk);
    mm_status status = mmi_dataset_row(&object, dataset, row, &desk->line);
    if (status == MM_OK && (status = mmi_sample_take(sample, desk, r, object)) != MM_OK)
        status = mmi_dataset_fail_within(status, dataset, row);
    mmi_json_free(object);
    return status;
}
