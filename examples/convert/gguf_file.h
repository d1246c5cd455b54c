/* What a GGUF file is made of, for writing and for reading one: kinds of values and of numbers, and names of tensors. And
 * the lists at its head, read. */
#ifndef EXAMPLES_GGUF_FILE_H
#define EXAMPLES_GGUF_FILE_H

#include <minimind.h>
#include <stdbool.h>
#include <stddef.h>

#define GGUF_BEGIN "GGUF" /* of a file */

enum { GGUF_ALIGNMENT = 32, GGUF_VERSION = 3 };

typedef enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY,
    GGUF_U64, GGUF_I64, GGUF_F64
} gguf_type;

typedef struct gguf_kind {
    int32_t dtype, type, numbers; /* the library's name, GGUF's; in a block, or 1 */
    size_t bytes;                 /* of a block */
    const char *name;             /* safetensors' and ggml's */
} gguf_kind;

/* NULL: none of those that both sides know. */
const gguf_kind *gguf_kind_of(int32_t dtype);

/* What a tensor of a model is called there, an expert's as the stack of them; false: GGUF has no place for it. */
bool gguf_name(char *name, size_t size, const mm_tensor_info *info);

/* There queries and keys of a `llama` are turned in pairs of neighbours, here of halves: what is row `row` there, in heads
 * of D rows each, is this one here. */
int64_t gguf_source_row(int64_t row, int64_t D);

float gguf_half(uint16_t bits); /* a float16 */

enum { GGUF_NORMAL = 1, GGUF_CONTROL = 3, GGUF_USER_DEFINED = 4, GGUF_UNUSED = 5 }; /* types of tokens */

typedef struct gguf_text {
    const char *at;
    size_t length;
} gguf_text;

/* Vectors, and what chooses experts, are in float32 beside matrices in other numbers. */
bool gguf_is_wide(gguf_text name, uint32_t axes);

/* --- Reading --- */

bool gguf_text_is(gguf_text text, const char *words);

typedef struct gguf_key {
    gguf_text name;
    gguf_type type; /* of an array that of its items */
    bool array;
    uint64_t count;
    const unsigned char *values;
    bool asked; /* whether anybody looked it up */
} gguf_key;

typedef struct gguf_tensor {
    gguf_text name;
    uint64_t lengths[4]; /* the fastest first; 1 beyond `axes` */
    uint32_t axes;
    const gguf_kind *kind;
    const unsigned char *data;
    uint64_t size;
    bool used;
} gguf_tensor;

typedef struct gguf_file {
    const char *path;
    unsigned char *bytes;
    gguf_text architecture; /* "llama", without `at` where there is none */
    gguf_key *keys; /* [key_count], sorted by name, as are tensors [tensor_count] */
    gguf_tensor *tensors;
    uint64_t key_count, tensor_count;
} gguf_file;

/* Whatever is asked of a file, what is damaged ends the program with a message. All that is in it stays until
 * gguf_close(), and lies within the file; together tensors are no larger than it. */
void gguf_open(gguf_file *file, const char *path);
void gguf_close(gguf_file *file);
_Noreturn void gguf_refuse(const gguf_file *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define GGUF_SHOWN(text) (int)((text).length < 200 ? (text).length : 200), (text).at ? (text).at : "" /* for %.*s */

gguf_tensor *gguf_find_tensor(const gguf_file *file, const char *name);

/* Keys, by name; one that begins with a dot is the architecture's. */
gguf_key *gguf_find(const gguf_file *file, const char *name); /* NULL: it isn't there */
int64_t gguf_int(const gguf_file *file, const char *name, int64_t otherwise);
double gguf_real(const gguf_file *file, const char *name, double otherwise);
gguf_text gguf_string(const gguf_file *file, const char *name); /* without `at`: it isn't there */

/* An array of that type, and number or text i of such a one: texts are found from the front, so `at` goes from the first,
 * array->values, to the next. */
const gguf_key *gguf_array(const gguf_file *file, const char *name, gguf_type type);
gguf_text gguf_next_text(const unsigned char **at);
uint64_t gguf_number(const unsigned char *at, size_t bytes);

#endif
