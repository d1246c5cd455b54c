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
        tree->nodes[tree->count++] = (mmi_added_node){ 0, 0, -1, 0, false };
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)content[i];
        uint32_t child = child_of(tree, node, byte);
        if (child == 0) {
            child = (uint32_t)tree->count++;
            tree->nodes[child] = (mmi_added_node){ 0, tree->nodes[node].child, -1, byte, false };
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

int32_t mmi_added_find(size_t *start, size_t *end, const mmi_added *tree, const char *text, size_t length, size_t from,
                       bool with_special)
{
    for (size_t i = from; i < length; i++) {
        uint32_t node = tree->first[(unsigned char)text[i]];
        int32_t id = -1;
        for (size_t j = i + 1; node != 0; j++) {
            const mmi_added_node *here = &tree->nodes[node];
            if (here->id >= 0 && (with_special || !here->special)) {
                id = here->id;
                *start = i;
                *end = j;
            }
            node = j < length ? child_of(tree, node, (unsigned char)text[j]) : 0;
        }
        if (id >= 0)
            return id;
    }
    *start = *end = length;
    return -1;
}
