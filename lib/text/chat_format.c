/* Conversations: from messages to text and ids. */
#include "base/memory.h"
#include "base/options.h"
#include "text/chat_forms.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

MMI_OPTIONS_INIT(mm_chat_roles, MM_CHAT_ROLES_INIT)
MMI_OPTIONS_INIT(mm_chat_options, MM_CHAT_OPTIONS_INIT)

static mm_status check_roles(const mm_chat_roles *roles)
{
    const char *const strings[] = {
        roles->begin,       roles->default_system, roles->system_prefix,    roles->system_suffix,
        roles->user_prefix, roles->user_suffix,    roles->assistant_prefix, roles->assistant_suffix,
        roles->tool_prefix, roles->tool_suffix,    roles->generation_prompt
    };
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        size_t length = strings[i] ? strlen(strings[i]) : 0;
        if (length > 0 && mmi_utf8_valid(strings[i], length) < length)
            return mmi_fail(MM_ERR_ARG, "mm_chat_roles: a string is not UTF-8 at byte %zu",
                            mmi_utf8_valid(strings[i], length));
    }
    return MM_OK;
}

static mm_status check_options(const mm_chat_options *options)
{
    if (options->add_generation_prompt != 0 && options->add_generation_prompt != 1)
        return mmi_fail(MM_ERR_ARG, "mm_chat_options: add_generation_prompt is %d, not 0 or 1",
                        (int)options->add_generation_prompt);
    if (options->thinking < MM_THINK_DEFAULT || options->thinking > MM_THINK_OFF)
        return mmi_fail(MM_ERR_ARG, "mm_chat_options: thinking is %d, not one of MM_THINK_…", (int)options->thinking);
    mm_status status = mmi_check_split(options->content_split, "mm_chat_options: content_split");
    if (status != MM_OK)
        return status;
    if (options->reserved != 0)
        return mmi_fail(MM_ERR_ARG, "mm_chat_options: reserved is %d, not 0", (int)options->reserved);
    if (options->template_name && options->roles)
        return mmi_fail(MM_ERR_ARG, "mm_chat_options: a template and role strings are both given");
    if (options->template_name && mmi_chat_form_by_name(options->template_name) == MMI_CHAT_NONE)
        return mmi_fail(MM_ERR_ARG, "mm_chat_options: there is no template \"%s\", only minimind2, minimind3, minillm",
                        options->template_name);
    return MM_OK;
}

static mm_status render_roles(mmi_chat_text *out, const mm_chat *chat, const mm_chat_options *options)
{
    mm_chat_roles roles = MM_CHAT_ROLES_INIT;
    mm_status status = mmi_options_read(&roles, sizeof roles, options->roles, "mm_chat_roles");
    if (status == MM_OK)
        status = check_roles(&roles);
    if (status != MM_OK)
        return status;
    if (mmi_json_size(chat->tools) > 0)
        return mmi_fail(MM_ERR_UNSUPPORTED, "role strings have no place for tools");
    return mmi_chat_put_roles(out, chat, &roles, options->add_generation_prompt);
}

static mm_status render_template(mmi_chat_text *out, const mm_chat *chat, const mm_tokenizer *tokenizer,
                                 const mm_chat_options *options)
{
    static const mmi_chat_template nothing = { MMI_CHAT_NONE, NULL, NULL, NULL, 0 };
    const char *name = options->template_name;
    if (!name) {
        if (!tokenizer)
            return mmi_fail(MM_ERR_ARG, "a conversation needs a tokenizer, a template's name or role strings");
        mm_status status = mm_chat_template_name(tokenizer, &name);
        if (status != MM_OK)
            return status;
    }
    mmi_chat_form form = mmi_chat_form_by_name(name);
    if (form == MMI_CHAT_MINIMIND2)
        return mmi_chat_put_minimind2(out, chat);
    return mmi_chat_put_with_tools(out, chat, form, options, tokenizer ? &tokenizer->chat : &nothing);
}

mm_status mmi_chat_render(mmi_chat_text *out, const mm_chat *chat, const mm_tokenizer *tokenizer,
                          const mm_chat_options *options)
{
    mm_chat_options known = MM_CHAT_OPTIONS_INIT;
    mm_status status = mmi_options_read(&known, sizeof known, options, "mm_chat_options");
    if (status == MM_OK)
        status = check_options(&known);
    if (status != MM_OK)
        return status;
    if (chat->count == 0)
        return mmi_fail(MM_ERR_ARG, "the conversation has no messages");
    status = known.roles ? render_roles(out, chat, &known) : render_template(out, chat, tokenizer, &known);
    return status == MM_OK ? mmi_chat_text_status(out) : status;
}

mm_status mm_chat_format(const mm_chat *chat, const mm_tokenizer *tokenizer, const mm_chat_options *options, char *text,
                         size_t capacity, size_t *needed)
{
    if (!chat || (!text && capacity > 0))
        return mmi_fail(MM_ERR_ARG, "mm_chat_format: %s is NULL", !chat ? "chat" : "text");
    mmi_chat_text out = { 0 };
    mm_status status = mmi_chat_render(&out, chat, tokenizer, options);
    if (status == MM_OK)
        status = mmi_give_bytes(text, capacity, needed, out.bytes, out.length, "mm_chat_format");
    mmi_chat_text_free(&out);
    return status;
}

/* ---- Ids ---- */

typedef struct id_list {
    int32_t *ids; /* [room]: a byte gives at most one id */
    size_t count, room;
} id_list;

static mm_status add_ids(id_list *list, const mm_tokenizer *t, mmi_slice text, int32_t split)
{
    size_t n = 0;
    if (text.length == 0)
        return MM_OK;
    mm_status status = mm_encode(t, text.at, text.length, split, list->ids + list->count, list->room - list->count, &n);
    list->count += n;
    return status;
}

/* The template's own added tokens are cut out first; the rest is encoded as one text between them, so that merges
 * across the border of template and content happen as ever, with what the messages say recognised as `split` has it. */
static mm_status encode_apart(id_list *list, const mm_tokenizer *t, const mmi_chat_text *text, int32_t split)
{
    const mmi_slice all = { text->bytes, text->length };
    mmi_added_matches added = { 0 };
    size_t done = 0;
    mm_status status = MM_OK;
    for (size_t i = 0; i < text->own_count && status == MM_OK; i++) {
        const size_t before = text->own[i].start;
        const mmi_slice own = mmi_slice_from(mmi_slice_head(all, text->own[i].end), before);
        if (!mmi_added_find(&added, &t->added, own.at, own.length, true))
            status = mmi_fail_memory(own.length * sizeof(mmi_added_match), "the added tokens of a template");
        const mmi_added_match *match;
        while (status == MM_OK && (match = mmi_added_next(&added)) != NULL) {
            status = add_ids(list, t, mmi_slice_from(mmi_slice_head(all, before + match->start), done), split);
            if (status == MM_OK)
                list->ids[list->count++] = match->id;
            done = before + match->start + match->size;
        }
    }
    if (status == MM_OK)
        status = add_ids(list, t, mmi_slice_from(all, done), split);
    mmi_added_matches_free(&added);
    return status;
}

mm_status mm_chat_encode(const mm_chat *chat, const mm_tokenizer *tokenizer, const mm_chat_options *options,
                         int32_t *ids, size_t capacity, size_t *needed)
{
    if (!chat || !tokenizer || (!ids && capacity > 0))
        return mmi_fail(MM_ERR_ARG, "mm_chat_encode: %s is NULL", !chat ? "chat" : !tokenizer ? "tokenizer" : "ids");
    mm_chat_options known = MM_CHAT_OPTIONS_INIT;
    mmi_chat_text text = { 0 };
    id_list list = { NULL, 0, 0 };
    mm_status status = mmi_options_read(&known, sizeof known, options, "mm_chat_options");
    if (status == MM_OK)
        status = mmi_chat_render(&text, chat, tokenizer, &known);
    if (status == MM_OK) {
        list.room = text.length;
        list.ids = mmi_alloc(list.room, sizeof *list.ids);
        if (!list.ids)
            status = mmi_fail_memory(list.room * sizeof *list.ids, "ids");
    }
    if (status == MM_OK && known.content_split == MM_SPLIT_ALL)
        status = add_ids(&list, tokenizer, (mmi_slice){ text.bytes, text.length }, MM_SPLIT_ALL);
    else if (status == MM_OK)
        status = encode_apart(&list, tokenizer, &text, known.content_split);
    if (status == MM_OK)
        status = mmi_check_room(needed, list.count, capacity, "mm_chat_encode", "ids");
    if (status == MM_OK && capacity > 0 && list.count > 0)
        memcpy(ids, list.ids, list.count * sizeof *ids);
    mmi_free(list.ids);
    mmi_chat_text_free(&text);
    return status;
}
