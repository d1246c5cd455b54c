#include "text/added.h"

#include <string.h>

#include "base/memory.h"

/* The child of `node` for `byte`, or 0. */
static uint32_t child_of(const mmi_added_tree *tree, uint32_t node, unsigned char byte)
{
    if (node == 0)
        return tree->first[byte];
    uint32_t child = tree->nodes[node].child;
    while (child != 0 && tree->nodes[child].byte != byte)
        child = tree->nodes[child].sibling;
    return child;
}

bool mmi_added_insert(mmi_added *added, const char *content, size_t size, int32_t id, bool special, bool normalized)
{
    mmi_added_tree *tree = &added->trees[normalized];
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

void mmi_added_free(mmi_added *added)
{
    mmi_free(added->trees[0].nodes);
    mmi_free(added->trees[1].nodes);
    *added = (mmi_added){ 0 };
}

/* From `node` on by `byte`, the one before in the text: the longest end of a token that the text has from there on. */
static uint32_t step(const mmi_added_tree *tree, uint32_t node, unsigned char byte)
{
    uint32_t child = child_of(tree, node, byte);
    while (child == 0 && node != 0) {
        node = tree->nodes[node].shorter;
        child = child_of(tree, node, byte);
    }
    return child;
}

/* What a node's `shorter` leads to is less deep, and finished before. */
static void finish_node(mmi_added_tree *tree, uint32_t parent, uint32_t number)
{
    mmi_added_node *node = &tree->nodes[number];
    node->shorter = parent == 0 ? 0 : step(tree, tree->nodes[parent].shorter, node->byte);
    for (int special = 0; special < 2; special++)
        node->found[special] =
            node->id >= 0 && (special || !node->special) ? number : tree->nodes[node->shorter].found[special];
}

static bool finish_tree(mmi_added_tree *tree)
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

bool mmi_added_finish(mmi_added *added)
{
    return finish_tree(&added->trees[0]) && finish_tree(&added->trees[1]);
}

static bool append(mmi_added_list *list, mmi_added_match match)
{
    if (!mmi_grow(&list->items, &list->room, list->count + 1, sizeof *list->items))
        return false;
    list->items[list->count++] = match;
    return true;
}

/* Append what stands in text[from, to) by one tree. */
static bool find_between(mmi_added_list *list, const mmi_added_tree *tree, const char *text, size_t from, size_t to,
                         bool with_special)
{
    size_t before = list->count, kept, end = from;
    uint32_t node = 0;
    for (size_t i = to; tree->count > 0 && i-- > from;) {
        node = node == 0 ? tree->first[(unsigned char)text[i]] : step(tree, node, (unsigned char)text[i]);
        const mmi_added_node *found = &tree->nodes[tree->nodes[node].found[with_special]];
        if (found->depth > 0 && !append(list, (mmi_added_match){ i, found->depth, found->id }))
            return false;
    }
    kept = list->count;
    for (size_t i = list->count; i-- > before;) { /* from the left: what begins within the one before is none */
        mmi_added_match match = list->items[i];
        if (match.start < end)
            continue;
        end = match.start + match.size;
        list->items[--kept] = match;
    }
    const size_t count = list->count - kept;
    if (count > 0)
        memmove(list->items + before, list->items + kept, count * sizeof *list->items);
    list->count = before + count;
    return true;
}

bool mmi_added_find(mmi_added_matches *matches, const mmi_added *added, const char *text, size_t length,
                    bool with_special)
{
    mmi_added_list *first = &matches->lists[0], *all = &matches->lists[1];
    size_t end = length;
    first->count = all->count = 0;
    bool ok = find_between(first, &added->trees[0], text, 0, length, with_special);
    for (size_t i = 0; i < first->count && ok; i++) {
        const mmi_added_match match = first->items[i];
        ok = find_between(all, &added->trees[1], text, match.start + match.size, end, with_special) &&
             append(all, match);
        end = match.start;
    }
    return ok && find_between(all, &added->trees[1], text, 0, end, with_special);
}

const mmi_added_match *mmi_added_next(mmi_added_matches *matches)
{
    mmi_added_list *all = &matches->lists[1];
    return all->count > 0 ? &all->items[--all->count] : NULL;
}

void mmi_added_matches_free(mmi_added_matches *matches)
{
    mmi_free(matches->lists[0].items);
    mmi_free(matches->lists[1].items);
    *matches = (mmi_added_matches){ 0 };
}
