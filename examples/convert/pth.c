/* torch.save() writes a zip, nothing in it compressed, of a folder:
 *
 *     archive/data.pkl     a pickle: a dict of tensors, each with the key of its numbers, an offset, a shape and strides
 *     archive/data/KEY     numbers, which several tensors may share
 *     archive/byteorder    "little", of later versions
 *     archive/version      "3\n" */
#include "pth.h"

#include "grown.h"
#include "options.h"
#include "whole.h"
#include "zip.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "archive/"

static void put_text(grown *to, const char *text)
{
    put(to, "X", 1); /* BINUNICODE */
    put_little(to, strlen(text), 4);
    put(to, text, strlen(text));
}

static void put_whole(grown *to, int64_t number)
{
    if (number <= INT32_MAX) {
        put(to, "J", 1); /* BININT */
        put_little(to, (uint64_t)number, 4);
        return;
    }
    put(to, "\x8a\x08", 2); /* LONG1 */
    put_little(to, (uint64_t)number, 8);
}

/* name: _rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict()) */
static void put_tensor(grown *to, const char *name, const mm_view *view, int64_t key)
{
    char text[32];
    put_text(to, name);
    put_words(to, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_text(to, "storage");
    put_words(to, "ctorch\n");
    put_words(to, view->dtype == MM_F32 ? "Float" : view->dtype == MM_F16 ? "Half" : "BFloat16");
    put_words(to, "Storage\n");
    snprintf(text, sizeof text, "%" PRId64, key);
    put_text(to, text);
    put_text(to, "cpu");
    put_whole(to, view->shape[0] * view->shape[1]); /* 1 beyond a vector */
    put_words(to, "tQ");                            /* TUPLE, BINPERSID */
    put_whole(to, 0);
    put_words(to, "(");
    for (int32_t i = 0; i < view->rank; i++)
        put_whole(to, view->shape[i]);
    put_words(to, "t(");
    for (int32_t i = 0; i < view->rank; i++)
        put_whole(to, i + 1 < view->rank ? view->shape[i + 1] : 1);
    put_words(to, "t\x89" "ccollections\nOrderedDict\n)RtR"); /* TUPLE, NEWFALSE, …, TUPLE, REDUCE */
}

void pth_write(const char *path, const mm_model *model)
{
    const int64_t count = mm_model_tensor_count(model);
    grown pickle = { NULL, 0, 0 };
    int64_t embedding = 0;
    mm_view view, head;
    char name[64];
    if (count > ZIP_MOST)
        fail("a zip has too few files for so many tensors", "");
    put(&pickle, "\x80\x02}(", 4); /* PROTO 2, EMPTY_DICT, MARK */
    for (int64_t i = 0; i < count; i++) {
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        check(mm_layout_get(mm_model_config(model), i, &info));
        check(mm_model_tensor(model, i, &view));
        if (view.dtype != MM_F32 && view.dtype != MM_BF16 && view.dtype != MM_F16)
            fail("of a .pth --dtype is f32 or bf16, not ", mm_dtype_name(view.dtype));
        put_tensor(&pickle, info.name, &view, i);
        embedding = strcmp(info.name, "model.embed_tokens.weight") == 0 ? i : embedding;
    }
    if (mm_model_find(model, "lm_head.weight", &head) != MM_OK) { /* a tied one */
        check(mm_model_tensor(model, embedding, &view));
        put_tensor(&pickle, "lm_head.weight", &view, embedding);
    }
    put(&pickle, "u.", 2); /* SETITEMS, STOP */

    zip_writer w = { 0, { NULL, 0, 0 }, 0 };
    whole_begin(path, PTH_BEGIN, "zip");
    zip_write(&w, FOLDER "data.pkl", pickle.at, pickle.count);
    for (int64_t i = 0; i < count; i++) {
        if (mm_model_tensor(model, i, &view) != MM_OK)
            whole_fail(mm_last_error());
        snprintf(name, sizeof name, FOLDER "data/%" PRId64, i);
        zip_write(&w, name, view.data, (uint64_t)(view.shape[0] * view.shape[1]) * mm_dtype_size(view.dtype));
    }
    zip_write(&w, FOLDER "version", "3\n", 2);
    zip_end(&w);
    whole_end();
    free(pickle.at);
}
