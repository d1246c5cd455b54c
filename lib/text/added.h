/* Finding added tokens in text: the leftmost, and of those that start there the longest (Aho and Corasick, "Efficient
 * string matching", 1975). Bytes are looked at again only behind a token that might have been a longer one. */
#ifndef MMI_TEXT_ADDED_H
#define MMI_TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A beginning of a token. */
typedef struct mmi_added_node {
    uint32_t child, sibling; /* node numbers; 0: none (the root is nobody's child) */
    uint32_t depth;          /* its bytes */
    uint32_t shorter;        /* the longest end of it that is a beginning too */
    uint32_t found[2];       /* itself or the longest end of it that is a token, [1] special ones too; 0: none */
    int32_t id;              /* of the token that ends here, or -1 */
    unsigned char byte;
    bool special;
} mmi_added_node;

/* A tree of bytes. Zeroed: no tokens. */
typedef struct mmi_added {
    mmi_added_node *nodes; /* [count]; node 0 is the root */
    size_t count, room;
    uint32_t first[256]; /* the root's child for each byte, or 0 */
} mmi_added;

/* `content` isn't empty and wasn't added before. False when memory ran out. */
bool mmi_added_insert(mmi_added *tree, const char *content, size_t size, int32_t id, bool special);

/* Behind the last mmi_added_insert(). False when memory ran out. */
bool mmi_added_finish(mmi_added *tree);
void mmi_added_free(mmi_added *tree);

/* The first token in text[from, length) of a finished tree: its id, and where it stands. -1, start = length: none. */
int32_t mmi_added_find(size_t *start, size_t *end, const mmi_added *tree, const char *text, size_t length, size_t from,
                       bool with_special);

#endif
