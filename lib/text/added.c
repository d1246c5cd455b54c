#include "text/added.h"

#include "base/memory.h"

/* The child of `node` for `byte`, or 0. */
static uint32_t child_of(const mmi_added *tree, uint32_t node, unsigned char byte)
{
    if (node == 0)
        return tree->first[byte];
    uint32_t child = tree->nodes[node].child;
    while (child != 0 && tree->nodes[child].byte != byte)
        child = tree->nodes[child].sibling;
    return child;
}

bool mmi_added_insert(mmi_added *tree, const char *content, size_t size, int32_t id, bool special)
{
    if (!mmi_grow(&tree->nodes, &tree->room, tree->count + size + 1, sizeof *tree->nodes))
        return false;
    if (tree->count == 0)
        tree->nodes[tree->count++] = (mmi_added_node){ .id = -1 };
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)content[size - 1 - i];
        uint32_t child = child_of(tree, node, byte);
        if (child == 0) {
            child = (uint32_t)tree->count++;
            tree->nodes[child] = (mmi_added_node){
                .sibling = tree->nodes[node].child, .depth = (uint32_t)i + 1, .id = -1, .byte = byte
            };
            tree->nodes[node].child = child;
            if (node == 0)
                tree->first[byte] = child;
        }
        node = child;
    }
    tree->nodes[node].id = id;
    tree->nodes[node].special = special;
    return true;
}

void mmi_added_free(mmi_added *tree)
{
    mmi_free(tree->nodes);
    *tree = (mmi_added){ 0 };
}

/* From `node` on by `byte`, the one before in the text: the longest end of a token that the text has from there on. */
static uint32_t step(const mmi_added *tree, uint32_t node, unsigned char byte)
{
    uint32_t child = child_of(tree, node, byte);
    while (child == 0 && node != 0) {
        node = tree->nodes[node].shorter;
        child = child_of(tree, node, byte);
    }
    return child;
}

/* What a node's `shorter` leads to is less deep, and finished before. */
static void finish_node(mmi_added *tree, uint32_t parent, uint32_t number)
{
    mmi_added_node *node = &tree->nodes[number];
    node->shorter = parent == 0 ? 0 : step(tree, tree->nodes[parent].shorter, node->byte);
    for (int special = 0; special < 2; special++)
        node->found[special] =
            node->id >= 0 && (special || !node->special) ? number : tree->nodes[node->shorter].found[special];
}

bool mmi_added_finish(mmi_added *tree)
{
    if (tree->count == 0)
        return true;
    uint32_t *queue = mmi_alloc(tree->count, sizeof *queue); /* by depth */
    if (!queue)
        return false;
    size_t filled = 1;
    queue[0] = 0;
    for (size_t i = 0; i < filled; i++)
        for (uint32_t child = tree->nodes[queue[i]].child; child != 0; child = tree->nodes[child].sibling) {
            finish_node(tree, queue[i], child);
            queue[filled++] = child;
        }
    mmi_free(queue);
    return true;
}

bool mmi_added_scan(mmi_added_matches *matches, const mmi_added *tree, const char *text, size_t length,
                    bool with_special)
{
    uint32_t node = 0;
    matches->count = 0;
    for (size_t i = length; i-- > 0;) {
        node = node == 0 ? tree->first[(unsigned char)text[i]] : step(tree, node, (unsigned char)text[i]);
        uint32_t found = node == 0 ? 0 : tree->nodes[node].found[with_special];
        if (found == 0)
            continue;
        if (!mmi_grow(&matches->items, &matches->room, matches->count + 1, sizeof *matches->items))
            return false;
        matches->items[matches->count++] = (mmi_added_match){ i, found };
    }
    return true;
}

int32_t mmi_added_next(size_t *start, size_t *end, mmi_added_matches *matches, const mmi_added *tree, size_t from)
{
    while (matches->count > 0) {
        const mmi_added_match *match = &matches->items[--matches->count];
        if (match->start < from)
            continue; /* it begins within the one before */
        *start = match->start;
        *end = match->start + tree->nodes[match->node].depth;
        return tree->nodes[match->node].id;
    }
    return -1;
}
