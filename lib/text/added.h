/* Finding added tokens in text: the leftmost, and of those that start there the longest. */
#ifndef MMI_TEXT_ADDED_H
#define MMI_TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mmi_added_node {
    uint32_t child, sibling; /* node numbers; 0: none (the root is nobody's child) */
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
void mmi_added_free(mmi_added *tree);

/* The first token in text[from, length): its id, and where it stands. -1, start = length: none. */
int32_t mmi_added_find(size_t *start, size_t *end, const mmi_added *tree, const char *text, size_t length, size_t from,
                       bool with_special);

#endif
