#include "text/pieces.h"

#include <stdbool.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/memory.h"

/* Unicode White_Space to the letter. PCRE2's own \s holds U+180E too. */
#define SPACES "\\x{09}-\\x{0d}\\x{85}\\p{Z}"

/* Every character begins one of the alternatives, so each match starts where the last one ended. */
static const char pattern[] = "'s|'t|'re|'ve|'m|'ll|'d"
                              "| ?\\p{L}+"
                              "| ?\\p{N}+"
                              "| ?[^" SPACES "\\p{L}\\p{N}]+"
                              "|[" SPACES "]+(?![^" SPACES "])"
                              "|[" SPACES "]+";

struct mmi_splitter {
    pcre2_general_context *memory;
    pcre2_code *code;
    bool jit;
};

static void *take(size_t size, void *user)
{
    (void)user;
    return mmi_alloc(size, 1);
}

static void give(void *memory, void *user)
{
    (void)user;
    mmi_free(memory);
}

static mm_status compile(mmi_splitter *s)
{
    s->memory = pcre2_general_context_create(take, give, NULL);
    pcre2_compile_context *context = s->memory ? pcre2_compile_context_create(s->memory) : NULL;
    if (!context)
        return mmi_fail_memory(sizeof pattern, "the tokenizer's pattern");
    int error = 0;
    PCRE2_SIZE place = 0;
    s->code = pcre2_compile((PCRE2_SPTR)pattern, sizeof pattern - 1, PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error,
                            &place, context);
    pcre2_compile_context_free(context);
    if (!s->code && error == PCRE2_ERROR_HEAP_FAILED)
        return mmi_fail_memory(sizeof pattern, "the tokenizer's pattern");
    if (!s->code)
        return mmi_fail(MM_ERR_UNSUPPORTED, "this build of PCRE2 can't take the tokenizer's pattern (error %d at %zu)",
                        error, (size_t)place);
    s->jit = pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE) == 0; /* without it: slower, the same pieces */
    return MM_OK;
}

mm_status mmi_splitter_create(mmi_splitter **out)
{
    mmi_splitter *s = mmi_calloc(1, sizeof *s);
    if (!s)
        return mmi_fail_memory(sizeof *s, "the tokenizer's pattern");
    mm_status status = compile(s);
    if (status != MM_OK) {
        mmi_splitter_free(s);
        return status;
    }
    *out = s;
    return MM_OK;
}

void mmi_splitter_free(mmi_splitter *s)
{
    if (!s)
        return;
    pcre2_code_free(s->code);
    pcre2_general_context_free(s->memory);
    mmi_free(s);
}

mm_status mmi_pieces_open(mmi_pieces *p, const mmi_splitter *splitter)
{
    *p = (mmi_pieces){ splitter, pcre2_match_data_create(1, splitter->memory), "", 0, 0 };
    return p->match ? MM_OK : mmi_fail_memory(sizeof *p, "cutting text into pieces");
}

void mmi_pieces_close(mmi_pieces *p)
{
    pcre2_match_data_free(p->match);
    p->match = NULL;
}

void mmi_pieces_start(mmi_pieces *p, const char *text, size_t length)
{
    p->text = text;
    p->length = length;
    p->at = 0;
}

static int match_here(mmi_pieces *p)
{
    PCRE2_SPTR text = (PCRE2_SPTR)p->text;
    if (p->splitter->jit) {
        int found = pcre2_jit_match(p->splitter->code, text, p->length, p->at, 0, p->match, NULL);
        if (found > 0)
            return found;
    }
    /* Checking the text again at every piece would be quadratic. */
    return pcre2_match(p->splitter->code, text, p->length, p->at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, p->match, NULL);
}

mm_status mmi_pieces_next(mmi_pieces *p, const char **piece, size_t *size)
{
    *piece = p->text + p->at;
    *size = 0;
    if (p->at == p->length)
        return MM_OK;
    int found = match_here(p);
    if (found == PCRE2_ERROR_NOMEMORY || found == PCRE2_ERROR_HEAPLIMIT)
        return mmi_fail_memory(p->length, "cutting text into pieces");
    size_t end = found > 0 ? pcre2_get_ovector_pointer(p->match)[1] : 0;
    if (end <= p->at)
        return mmi_fail(MM_ERR_INTERNAL, "the tokenizer's pattern failed at byte %zu (PCRE2 error %d)", p->at, found);
    *size = end - p->at;
    p->at = end;
    return MM_OK;
}
