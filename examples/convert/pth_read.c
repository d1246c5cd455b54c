/* Of what torch.save() wrote (see pth.c) an image of safetensors. */
#include "pth.h"

#include "image.h"
#include "pickle.h"
#include "zip.h"

#include <stdio.h>
#include <string.h>

/* What torch calls numbers, and what safetensors, in which the library reads them, does. */
static const struct kind {
    const char *torch, *safetensors;
    int32_t bytes, dtype; /* -1: none that weights can have */
} kinds[] = { { "torch.FloatStorage", "F32", 4, MM_F32 },     { "torch.BFloat16Storage", "BF16", 2, MM_BF16 },
              { "torch.HalfStorage", "F16", 2, MM_F16 },      { "torch.DoubleStorage", "F64", 8, -1 },
              { "torch.LongStorage", "I64", 8, -1 },          { "torch.IntStorage", "I32", 4, -1 },
              { "torch.ShortStorage", "I16", 2, -1 },         { "torch.CharStorage", "I8", 1, -1 },
              { "torch.ByteStorage", "U8", 1, -1 },           { "torch.BoolStorage", "BOOL", 1, -1 } };

/* A tensor as the pickle has it, and where its numbers are. */
typedef struct tensor {
    const char *name;
    const struct kind *kind;
    int64_t offset, shape[4], strides[4], elements;
    size_t rank;
    const pickle_value *storage;
} tensor;

static int64_t count_at(const tensor *t, const pickle_value *list, size_t i)
{
    if (list->items[i]->kind != PICKLE_NUMBER || list->items[i]->number < 0)
        zip_refuse(t->name, " has a shape that is not of whole numbers");
    return list->items[i]->number;
}

/* Refused here is what would lead beyond the numbers, the rest by the library. */
static tensor read_tensor(const char *name, const pickle_value *value)
{
    tensor t = { .name = name, .elements = 1 };
    if (value->kind != PICKLE_TENSOR)
        zip_refuse(name, " is no tensor");
    const pickle_value *offset = value->items[1], *shape = value->items[2], *strides = value->items[3];
    t.storage = value->items[0];
    if (t.storage->kind != PICKLE_STORAGE || offset->kind != PICKLE_NUMBER || offset->number < 0 ||
        shape->kind != PICKLE_LIST || strides->kind != PICKLE_LIST || shape->count != strides->count || shape->count > 4)
        zip_refuse(name, " is not as torch.save() describes a tensor of up to four dimensions");
    t.offset = offset->number;
    t.rank = shape->count;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(t.storage->items[1]->text, kinds[i].torch) == 0)
            t.kind = &kinds[i];
    if (!t.kind)
        zip_refuse(name, " has numbers of a kind that is not known here");
    for (size_t i = 0; i < t.rank; i++) {
        t.shape[i] = count_at(&t, shape, i);
        t.strides[i] = count_at(&t, strides, i);
        if (t.shape[i] > 0 && t.elements > UINT32_MAX / t.shape[i])
            zip_refuse(name, " has more numbers than its file can hold");
        t.elements *= t.shape[i];
    }
    return t;
}

static void check_reach(const tensor *t, size_t stored)
{
    const uint64_t all = stored / (size_t)t->kind->bytes;
    uint64_t last = (uint64_t)t->offset;
    bool good = last < all || t->elements == 0;
    for (size_t i = 0; i < t->rank && good && t->elements > 0; i++) {
        const uint64_t steps = (uint64_t)t->shape[i] - 1, stride = (uint64_t)t->strides[i];
        good = steps == 0 || stride <= all / steps;
        last += good ? steps * stride : 0;
        good = good && last < all;
    }
    if (!good)
        zip_refuse(t->name, " has numbers beyond those that are stored");
}

static void put_numbers(grown *to, const tensor *t, const unsigned char *stored)
{
    const size_t size = (size_t)t->kind->bytes;
    int64_t shape[4] = { 1, 1, 1, 1 }, strides[4] = { 0, 0, 0, 0 };
    if (t->elements == 0) /* what strides say then is not checked */
        return;
    for (size_t i = 0; i < t->rank; i++) {
        shape[4 - t->rank + i] = t->shape[i];
        strides[4 - t->rank + i] = t->strides[i];
    }
    for (int64_t a = 0; a < shape[0]; a++)
        for (int64_t b = 0; b < shape[1]; b++)
            for (int64_t c = 0; c < shape[2]; c++) {
                const int64_t row = t->offset + a * strides[0] + b * strides[1] + c * strides[2];
                if (strides[3] == 1)
                    put(to, stored + (size_t)row * size, (size_t)shape[3] * size);
                for (int64_t d = 0; strides[3] != 1 && d < shape[3]; d++)
                    put(to, stored + (size_t)(row + d * strides[3]) * size, size);
            }
}

/* The dict of tensors, in a checkpoint with more than those, too. */
static const pickle_value *weights_in(const pickle_value *root)
{
    static const char *const names[] = { "model", "state_dict" };
    for (int i = 0; i < 2; i++) {
        const pickle_value *inner = pickle_member(root, names[i]);
        if (inner && inner->kind == PICKLE_DICT)
            return inner;
    }
    if (root->kind != PICKLE_DICT || root->count == 0)
        zip_refuse("", "holds no dict of weights");
    return root;
}

/* Rather than a table that some programs keep beside them, of rotations or masks. */
static bool is_weight(const char *name)
{
    const char *end = strrchr(name, '.');
    return end && (strcmp(end, ".weight") == 0 || strcmp(end, ".bias") == 0);
}

/* A model's weights, or those of a LoRA. What they are all of, MM_F32 where they differ. */
static int32_t fill_image(image *to, zip *z, const pickle_value *weights, bool lora)
{
    int32_t dtype = -1;
    if (weights->count / 2 > ZIP_MOST)
        zip_refuse("", "has more weights than a zip has room for");
    for (size_t i = 0; i < weights->count; i += 2) {
        if (weights->items[i]->kind != PICKLE_TEXT)
            zip_refuse("", "has a weight whose name is no text");
        const char *name = weights->items[i]->text;
        if (!strstr(name, ".lora.") == lora)
            zip_refuse(name, lora ? " is no part of a LoRA" : " is of a LoRA, which --adapter is for");
        tensor t = read_tensor(name, weights->items[i + 1]);
        const uint64_t size = (uint64_t)t.elements * (uint64_t)t.kind->bytes;
        char ending[300];
        snprintf(ending, sizeof ending, "/data/%s", t.storage->items[2]->text);
        const zip_entry *stored = zip_find(z, ending);
        if (!stored)
            zip_refuse(t.name, " has no numbers in the zip");
        check_reach(&t, stored->size);
        if (to->numbers.count + size > 2 * (uint64_t)z->size) /* a tied embedding is there twice */
            zip_refuse(name, " is one of many that share their numbers: together they have more than twice what is stored");
        if (!image_describe(to, t.name, t.kind->safetensors, t.shape, t.rank, size))
            zip_refuse("", "has a tensor with a name that is no weight's");
        put_numbers(&to->numbers, &t, stored->data);
        if (is_weight(name))
            dtype = dtype < 0 || dtype == t.kind->dtype ? t.kind->dtype : MM_F32;
    }
    return dtype;
}

static int32_t read_image(image *to, const char *path, bool lora)
{
    zip z = zip_open(path);
    const zip_entry *order = zip_find(&z, "/byteorder"), *objects = zip_find(&z, "/data.pkl");
    if (order && (order->size != 6 || memcmp(order->data, "little", 6) != 0))
        zip_refuse("", "has numbers of another byte order");
    if (!objects)
        zip_refuse("", "is a zip without a data.pkl, which torch.save() writes");
    pickle_value *root = pickle_read(objects->data, objects->size, path);
    int32_t dtype = fill_image(to, &z, weights_in(root), lora);
    pickle_free(root);
    zip_close(&z);
    return dtype;
}

mm_model *pth_read(const char *path, const mm_config *config)
{
    image weights = { { NULL, 0, 0 }, { NULL, 0, 0 } };
    int32_t dtype = read_image(&weights, path, false);
    return image_model(&weights, path, config, dtype);
}

mm_adapter *pth_read_adapter(const char *path, mm_model *model)
{
    image weights = { { NULL, 0, 0 }, { NULL, 0, 0 } };
    read_image(&weights, path, true);
    return image_adapter(&weights, path, model);
}
