#include "model/trained.h"

#include <string.h>

#include "base/memory.h"
#include "model/patterns.h"

int64_t mmi_trained_count(const mmi_trained *t)
{
    return t->adapter ? mm_adapter_tensor_count(t->adapter) : t->layout->count;
}

void mmi_trained_tensor(const mmi_trained *t, int64_t index, mmi_tensor *out)
{
    if (t->adapter)
        mmi_adapter_shape(t->adapter, index, out);
    else
        mmi_layout_tensor(t->layout, index, out);
}

void mmi_trained_name(const mmi_trained *t, int64_t index, char name[MMI_TRAINED_NAME_SIZE])
{
    if (t->adapter)
        mmi_adapter_tensor_name(t->adapter, index, name, MMI_TRAINED_NAME_SIZE);
    else
        mmi_layout_name(t->layout, index, name, MMI_TRAINED_NAME_SIZE);
}

/* A pattern may mean a tensor, or the module that it is the weight or the bias of. */
static bool means(mmi_pattern pattern, const char *name)
{
    if (mmi_pattern_means(pattern, name))
        return true;
    char module[MMI_TRAINED_NAME_SIZE];
    const char *dot = strrchr(name, '.');
    if (!dot || (strcmp(dot, ".weight") != 0 && strcmp(dot, ".bias") != 0))
        return false;
    memcpy(module, name, (size_t)(dot - name));
    module[dot - name] = '\0';
    return mmi_pattern_means(pattern, module);
}

bool mmi_trained_learns(const mmi_trained *t, int64_t index)
{
    if (!t->patterns)
        return true;
    char name[MMI_TRAINED_NAME_SIZE];
    mmi_trained_name(t, index, name);
    const char *list = t->patterns;
    for (mmi_pattern p; mmi_pattern_next(&p, &list);)
        if (means(p, name))
            return true;
    return false;
}

bool mmi_trained_head(const mmi_trained *t)
{
    int64_t head = mmi_layout_index(t->layout, MMI_HEAD, 0, 0);
    return !t->adapter && mmi_trained_learns(t, head >= 0 ? head : mmi_layout_index(t->layout, MMI_EMBED, 0, 0));
}

mm_status mmi_trained_check(const mmi_trained *t)
{
    const char *list = t->patterns;
    for (mmi_pattern p; mmi_pattern_next(&p, &list);) {
        /* a whole name first: of a list of thousands only the layers named are searched */
        bool found = !t->adapter && (mmi_name_find_joined(t->layout, p.text, p.length, "") >= 0 ||
                                     mmi_name_find_joined(t->layout, p.text, p.length, ".weight") >= 0);
        for (int64_t i = 0; i < mmi_trained_count(t) && !found; i++) {
            char name[MMI_TRAINED_NAME_SIZE];
            mmi_trained_name(t, i, name);
            found = means(p, name);
        }
        if (!found)
            return mmi_fail(MM_ERR_ARG, "trainable has \"%.*s\", which means no tensor of this model",
                            (int)(p.length < 200 ? p.length : 200), p.text);
    }
    return MM_OK;
}

size_t mmi_trained_place(const mmi_trained *t, size_t *offsets)
{
    if (!t->adapter && !t->patterns)
        return mmi_layout_place(t->layout, sizeof(float), offsets);
    size_t next = 0;
    for (int64_t i = 0; i < mmi_trained_count(t); i++) {
        bool frozen = !mmi_trained_learns(t, i);
        if (offsets)
            offsets[i] = frozen ? MMI_FROZEN : next;
        if (frozen)
            continue;
        mmi_tensor tensor;
        mmi_trained_tensor(t, i, &tensor);
        next += mmi_align_up((size_t)tensor.elements * sizeof(float));
    }
    return next;
}

bool mmi_trained_alike(const mmi_trained *a, const mmi_trained *b)
{
    int64_t count = mmi_trained_count(a);
    bool alike = count == mmi_trained_count(b);
    for (int64_t i = 0; alike && i < count; i++) {
        mmi_tensor x, y;
        mmi_trained_tensor(a, i, &x);
        mmi_trained_tensor(b, i, &y);
        alike = x.role == y.role && x.layer == y.layer && x.expert == y.expert && x.rank == y.rank &&
                x.shape[0] == y.shape[0] && x.shape[1] == y.shape[1];
    }
    return alike;
}
