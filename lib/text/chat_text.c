#include "text/chat_text.h"

#include "base/memory.h"

void mmi_chat_text_free(mmi_chat_text *text)
{
    mmi_free(text->bytes);
    mmi_free(text->own);
    *text = (mmi_chat_text){ 0 };
}

void mmi_chat_text_put(mmi_chat_text *text, mmi_slice slice)
{
    if (slice.length == 0 || text->failed)
        return;
    if (slice.length > SIZE_MAX - text->length ||
        !mmi_grow(&text->bytes, &text->room, text->length + slice.length, 1)) {
        text->failed = true;
        return;
    }
    memcpy(text->bytes + text->length, slice.at, slice.length);
    text->length += slice.length;
}

void mmi_chat_text_put_own(mmi_chat_text *text, mmi_slice slice)
{
    size_t start = text->length;
    mmi_chat_text_put(text, slice);
    if (text->failed || slice.length == 0)
        return;
    if (text->own_count > 0 && text->own[text->own_count - 1].end == start) {
        text->own[text->own_count - 1].end = text->length;
    } else if (mmi_grow(&text->own, &text->own_room, text->own_count + 1, sizeof *text->own)) {
        text->own[text->own_count++] = (mmi_span){ start, text->length };
    } else {
        text->failed = true;
    }
}

void mmi_chat_text_end(mmi_chat_text *text)
{
    mmi_chat_text_put(text, (mmi_slice){ "", 1 });
    text->length -= !text->failed;
}

mm_status mmi_chat_text_status(const mmi_chat_text *text)
{
    return text->failed ?
               mmi_fail(MM_ERR_MEMORY, "out of memory: a conversation's text beyond %zu bytes", text->length) :
               MM_OK;
}
