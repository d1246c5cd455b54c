/* Finding added tokens in text: from the left, of those that start at one place the longest, none within another; first
 * those that are to be found in a text as it is, then, between them, those that are to be found in a text that was
 * normalized. One pass, from the text's end to its start, tells of each place which token is the longest there (Aho and
 * Corasick, "Efficient string matching", 1975, with bytes in reverse): the time does not grow with the tokens. */
#ifndef MMI_TEXT_ADDED_H
#define MMI_TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An end of a token. */
typedef struct mmi_added_node {
    uint32_t child, sibling; /* node numbers; 0: none (the root is nobody's child) */
    uint32_t depth;          /* its bytes */
    uint32_t shorter;        /* the longest beginning of it that is an end too */
    uint32_t found[2];       /* itself or its longest beginning that is a token, [1] special ones too; 0: none */
    int32_t id;              /* of the token that it is, or -1 */
    unsigned char byte;      /* its first */
    bool special;
} mmi_added_node;

/* A tree of bytes. */
typedef struct mmi_added_tree {
    mmi_added_node *nodes; /* [count]; node 0 is the root */
    size_t count, room;
    uint32_t first[256]; /* the root's child for each byte, or 0 */
} mmi_added_tree;

/* Zeroed: no tokens. */
typedef struct mmi_added {
    mmi_added_tree trees[2]; /* [1] of normalized ones */
} mmi_added;

/* `content` isn't empty and wasn't added before. False when memory ran out. */
bool mmi_added_insert(mmi_added *added, const char *content, size_t size, int32_t id, bool special, bool normalized);

/* Behind the last mmi_added_insert(). False when memory ran out. */
bool mmi_added_finish(mmi_added *added);
void mmi_added_free(mmi_added *added);

/* Where one stands. */
typedef struct mmi_added_match {
    size_t start;
    uint32_t size;
    int32_t id;
} mmi_added_match;
typedef struct mmi_added_list {
    mmi_added_match *items; /* [count], the last in the text first */
    size_t count, room;
} mmi_added_list;

/* What stands in a text. Zeroed: nothing. */
typedef struct mmi_added_matches {
    mmi_added_list lists[2]; /* [0] of the first tree, [1] of both */
} mmi_added_matches;

/* All of a text's, if finished. False when memory ran out. */
bool mmi_added_find(mmi_added_matches *matches, const mmi_added *added, const char *text, size_t length,
                    bool with_special);

/* Take the next; NULL: there is none. It lasts until the next text. */
const mmi_added_match *mmi_added_next(mmi_added_matches *matches);
void mmi_added_matches_free(mmi_added_matches *matches);

#endif
