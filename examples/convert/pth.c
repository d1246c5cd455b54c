/* torch.save() writes a zip, nothing in it compressed, of a folder:
 *
 *     archive/data.pkl     a pickle: a dict of tensors, each with the key of its numbers, an offset, a shape and strides
 *     archive/data/KEY     numbers, which several tensors may share
 *     archive/byteorder    "little", of later versions
 *     archive/version      "3\n"
 *
 * A zip ends with a list of what is in it, and that with a record of where the list begins (PKWARE's APPNOTE, 4.3). */
#include "pth.h"

#include "image.h"
#include "options.h"
#include "pickle.h"
#include "whole.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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
enum { KINDS = sizeof kinds / sizeof *kinds, WEIGHTS = 3 };

static const char *file; /* for messages */

static _Noreturn void refuse(const char *what, const char *why)
{
    char message[1024];
    snprintf(message, sizeof message, "%.300s: %.300s%s", file, what, why);
    fail_plainly(message);
}

/* --- The zip --- */

enum { LOCAL = 0x04034b50, LISTED = 0x02014b50, END = 0x06054b50, LOCAL_BYTES = 30, LISTED_BYTES = 46, END_BYTES = 22 };
enum { TENSORS_MOST = 65000 }; /* a zip has up to 65535 files */

typedef struct entry {
    const char *name;
    size_t name_length;
    const unsigned char *data;
    size_t size;
    uint32_t crc;
    bool checked; /* by its checksum */
} entry;

typedef struct zip {
    const unsigned char *bytes;
    size_t size;
    entry *entries; /* [count] */
    size_t count, next; /* behind the last one found: torch lists numbers as the pickle asks for them */
} zip;

static uint32_t number_at(const unsigned char *at, int bytes)
{
    uint32_t number = 0;
    for (int i = bytes; i-- > 0;)
        number = number << 8 | at[i];
    return number;
}

static uint32_t crc_of(const unsigned char *bytes, size_t size, uint32_t crc)
{
    static uint32_t table[256];
    for (uint32_t i = 0; table[255] == 0 && i < 256; i++) {
        uint32_t rest = i;
        for (int bit = 0; bit < 8; bit++)
            rest = rest >> 1 ^ (rest & 1 ? 0xedb88320u : 0);
        table[i] = rest;
    }
    crc = ~crc;
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 255];
    return ~crc;
}

static const unsigned char *find_end(const zip *z)
{
    for (size_t back = END_BYTES; back <= z->size && back <= END_BYTES + 65535; back++) /* a comment may follow */
        if (number_at(z->bytes + z->size - back, 4) == END)
            return z->bytes + z->size - back;
    refuse("", "is cut short: the list at the end of its zip is missing");
}

/* The listed file at `at`, and where the next one is listed. */
static const unsigned char *read_listed(const zip *z, const unsigned char *at, entry *out)
{
    const size_t left = z->size - (size_t)(at - z->bytes);
    if (left < LISTED_BYTES || number_at(at, 4) != LISTED)
        refuse("", "has a damaged zip");
    const size_t name = number_at(at + 28, 2), extra = number_at(at + 30, 2), comment = number_at(at + 32, 2);
    const size_t size = number_at(at + 24, 4), begin = number_at(at + 42, 4);
    if (left - LISTED_BYTES < name + extra + comment)
        refuse("", "has a damaged zip");
    if (number_at(at + 10, 2) != 0 || number_at(at + 20, 4) != size)
        refuse("", "has compressed files in its zip, which torch.save() does not write");
    if (size == UINT32_MAX || begin == UINT32_MAX)
        refuse("", "has more than 4 GB, which is more than is read here");
    const unsigned char *local = z->bytes + begin;
    if (begin > z->size || z->size - begin < LOCAL_BYTES || number_at(local, 4) != LOCAL)
        refuse("", "has a damaged zip");
    const size_t before = LOCAL_BYTES + number_at(local + 26, 2) + number_at(local + 28, 2);
    if (z->size - begin < before || z->size - begin - before < size)
        refuse("", "has a damaged zip");
    *out = (entry){ (const char *)at + LISTED_BYTES, name, local + before, size, number_at(at + 16, 4), false };
    return at + LISTED_BYTES + name + extra + comment;
}

/* Files that lie in one another would take longer to check than they are long. */
static zip read_zip(const unsigned char *bytes, size_t size)
{
    zip z = { bytes, size, NULL, 0, 0 };
    const unsigned char *end = find_end(&z);
    const size_t count = number_at(end + 10, 2), begin = number_at(end + 16, 4);
    if ((size_t)(end - bytes) < begin)
        refuse("", "has a damaged zip");
    z.entries = need(calloc(count + 1, sizeof *z.entries));
    const unsigned char *at = bytes + begin;
    uint64_t together = 0;
    for (; z.count < count; together += z.entries[z.count++].size)
        at = read_listed(&z, at, &z.entries[z.count]);
    if (together > size)
        refuse("", "has a damaged zip");
    return z;
}

/* The one whose name ends so, NULL: there is none. What it holds must be what was put there. */
static const entry *find_entry(zip *z, const char *ending)
{
    const size_t length = strlen(ending);
    for (size_t i = 0; i < z->count; i++) {
        const size_t place = (z->next + i) % z->count;
        entry *e = &z->entries[place];
        if (e->name_length < length || memcmp(e->name + e->name_length - length, ending, length) != 0)
            continue;
        if (!e->checked && crc_of(e->data, e->size, 0) != e->crc)
            refuse(ending, " is damaged: its checksum is another one");
        e->checked = true; /* many tensors may share it */
        z->next = place + 1;
        return e;
    }
    return NULL;
}

/* --- Weights of it as an image of safetensors --- */

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
        refuse(t->name, " has a shape that is not of whole numbers");
    return list->items[i]->number;
}

/* Refused here is what would lead beyond the numbers, the rest by the library. */
static tensor read_tensor(const char *name, const pickle_value *value)
{
    tensor t = { .name = name, .elements = 1 };
    if (value->kind != PICKLE_TENSOR)
        refuse(name, " is no tensor");
    const pickle_value *offset = value->items[1], *shape = value->items[2], *strides = value->items[3];
    t.storage = value->items[0];
    if (t.storage->kind != PICKLE_STORAGE || offset->kind != PICKLE_NUMBER || offset->number < 0 ||
        shape->kind != PICKLE_LIST || strides->kind != PICKLE_LIST || shape->count != strides->count || shape->count > 4)
        refuse(name, " is not as torch.save() describes a tensor of up to four dimensions");
    t.offset = offset->number;
    t.rank = shape->count;
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(t.storage->items[1]->text, kinds[i].torch) == 0)
            t.kind = &kinds[i];
    if (!t.kind)
        refuse(name, " has numbers of a kind that is not known here");
    for (size_t i = 0; i < t.rank; i++) {
        t.shape[i] = count_at(&t, shape, i);
        t.strides[i] = count_at(&t, strides, i);
        if (t.shape[i] > 0 && t.elements > UINT32_MAX / t.shape[i])
            refuse(name, " has more numbers than its file can hold");
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
        refuse(t->name, " has numbers beyond those that are stored");
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
        refuse("", "holds no dict of weights");
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
    if (weights->count / 2 > TENSORS_MOST)
        refuse("", "has more weights than a zip has room for");
    for (size_t i = 0; i < weights->count; i += 2) {
        if (weights->items[i]->kind != PICKLE_TEXT)
            refuse("", "has a weight whose name is no text");
        const char *name = weights->items[i]->text;
        if (!strstr(name, ".lora.") == lora)
            refuse(name, lora ? " is no part of a LoRA" : " is of a LoRA, which --adapter is for");
        tensor t = read_tensor(name, weights->items[i + 1]);
        const uint64_t size = (uint64_t)t.elements * (uint64_t)t.kind->bytes;
        char ending[300];
        snprintf(ending, sizeof ending, "/data/%s", t.storage->items[2]->text);
        const entry *stored = find_entry(z, ending);
        if (!stored)
            refuse(t.name, " has no numbers in the zip");
        check_reach(&t, stored->size);
        if (to->numbers.count + size > 2 * (uint64_t)z->size) /* a tied embedding is there twice */
            refuse(t.name, " is one of many that share their numbers: together they have more than twice what is stored");
        if (!image_describe(to, t.name, t.kind->safetensors, t.shape, t.rank, size))
            refuse("", "has a tensor with a name that is no weight's");
        put_numbers(&to->numbers, &t, stored->data);
        if (is_weight(name))
            dtype = dtype < 0 || dtype == t.kind->dtype ? t.kind->dtype : MM_F32;
    }
    return dtype;
}

static int32_t read_image(image *to, const char *path, bool lora)
{
    file = path;
    FILE *opened = fopen(path, "rb");
    size_t size = 0;
    char *bytes = opened ? read_all(opened, path, &size) : NULL;
    if (!bytes)
        refuse("can't be read: ", strerror(errno));
    if (size < END_BYTES || number_at((const unsigned char *)bytes, 4) != LOCAL)
        refuse("", "is not what torch.save() writes, which is a zip since PyTorch 1.6");
    zip z = read_zip((const unsigned char *)bytes, size);
    const entry *order = find_entry(&z, "/byteorder"), *objects = find_entry(&z, "/data.pkl");
    if (order && (order->size != 6 || memcmp(order->data, "little", 6) != 0))
        refuse("", "has numbers of another byte order");
    if (!objects)
        refuse("", "is a zip without a data.pkl, which torch.save() writes");
    pickle_value *root = pickle_read(objects->data, objects->size, path);
    int32_t dtype = fill_image(to, &z, weights_in(root), lora);
    pickle_free(root);
    free(z.entries);
    free(bytes);
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

bool pth_is(const char *path)
{
    unsigned char begin[4];
    FILE *opened = fopen(path, "rb");
    bool is = opened && fread(begin, 1, 4, opened) == 4 && number_at(begin, 4) == LOCAL;
    if (opened)
        fclose(opened);
    return is;
}

/* --- Writing --- */

static const char folder[] = "archive/";

/* What has been written, for the list at the end. */
typedef struct writer {
    uint64_t written;
    grown listed;
    uint32_t count;
} writer;

/* What the record of a file, there and in the list, has in common. */
static void put_record(grown *to, uint32_t crc, uint64_t size, size_t name, size_t extra)
{
    put_little(to, 0, 2);      /* flags */
    put_little(to, 0, 2);      /* stored */
    put_little(to, 0, 2);      /* midnight */
    put_little(to, 0x21, 2);   /* of 1980-01-01, the first day there is: the same model is the same bytes */
    put_little(to, crc, 4);
    put_little(to, size, 4);
    put_little(to, size, 4);
    put_little(to, name, 2);
    put_little(to, extra, 2);
}

/* torch has numbers begin at a multiple of 64; what lies before them is a field that nobody reads, as it does it. */
static void write_entry(writer *w, const char *name, const void *bytes, uint64_t size)
{
    enum { ALIGNMENT = 64, FIELD = 4 };
    char whole[64];
    const size_t length = (size_t)snprintf(whole, sizeof whole, "%s%s", folder, name);
    const size_t extra = FIELD + (size_t)(ALIGNMENT - (w->written + LOCAL_BYTES + length + FIELD) % ALIGNMENT) % ALIGNMENT;
    const uint32_t crc = crc_of(bytes, (size_t)size, 0);
    static const unsigned char zeros[ALIGNMENT];
    grown local = { NULL, 0, 0 };
    if (w->written + size + 65536 > UINT32_MAX)
        whole_fail("a .pth of more than 4 GB is not written here");
    put_little(&local, LOCAL, 4);
    put_little(&local, 20, 2); /* version 2.0 can read it */
    put_record(&local, crc, size, length, extra);
    put(&local, whole, length);
    put(&local, "FB", 2);
    put_little(&local, extra - FIELD, 2);
    put(&local, zeros, extra - FIELD);

    put_little(&w->listed, LISTED, 4);
    put_little(&w->listed, 20, 2);
    put_little(&w->listed, 20, 2);
    put_record(&w->listed, crc, size, length, 0);
    put_little(&w->listed, 0, 2);  /* comment */
    put_little(&w->listed, 0, 2);  /* disk */
    put_little(&w->listed, 0, 2);  /* attributes */
    put_little(&w->listed, 0, 4);
    put_little(&w->listed, w->written, 4);
    put(&w->listed, whole, length);

    whole_write(local.at, local.count);
    whole_write(bytes, (size_t)size);
    w->written += local.count + size;
    w->count++;
    free(local.at);
}

static void write_list(writer *w)
{
    grown end = { NULL, 0, 0 };
    put_little(&end, END, 4);
    put_little(&end, 0, 4); /* disks */
    put_little(&end, w->count, 2);
    put_little(&end, w->count, 2);
    put_little(&end, w->listed.count, 4);
    put_little(&end, w->written, 4);
    put_little(&end, 0, 2); /* comment */
    whole_write(w->listed.at, w->listed.count);
    whole_write(end.at, end.count);
    free(w->listed.at);
    free(end.at);
}

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
    for (size_t i = 0; i < WEIGHTS; i++)
        if (kinds[i].dtype == view->dtype)
            put_words(to, strchr(kinds[i].torch, '.') + 1);
    put_words(to, "\n");
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
    if (count > TENSORS_MOST)
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

    writer w = { 0, { NULL, 0, 0 }, 0 };
    whole_begin(path, "PK\3\4", "zip");
    write_entry(&w, "data.pkl", pickle.at, pickle.count);
    for (int64_t i = 0; i < count; i++) {
        if (mm_model_tensor(model, i, &view) != MM_OK)
            whole_fail(mm_last_error());
        snprintf(name, sizeof name, "data/%" PRId64, i);
        write_entry(&w, name, view.data, (uint64_t)(view.shape[0] * view.shape[1]) * mm_dtype_size(view.dtype));
    }
    write_entry(&w, "version", "3\n", 2);
    write_list(&w);
    whole_end();
    free(pickle.at);
}
