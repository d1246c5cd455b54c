/* Checkpoints written beside training: the tensors are copied, then a thread of the saver's own writes the copy. One at
 * a time; what one has to say is heard when the next one begins, or when the run ends. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "train/checkpoint.h"
#include "train/parallel.h"

struct mmi_saver {
    const mm_trainer *trainer; /* of whom only what never changes is looked at */
    mmi_thread *thread;        /* at work, or ended and not heard yet; else NULL */
    mmi_checkpoint checkpoint; /* its tensors lie in `copy` */
    unsigned char *copy;
    size_t room;
    mm_status status;
    char message[1024];
};

static size_t bytes_of(const mmi_tensor_list *list)
{
    size_t bytes = 0;
    for (size_t i = 0; i < list->count; i++)
        bytes += mmi_align_up(list->entries[i].bytes);
    return bytes;
}

mm_status mmi_saver_create(mmi_saver **out, const mm_trainer *t)
{
    mmi_saver *s = mmi_calloc(1, sizeof *s);
    if (!s)
        return mmi_fail_memory(sizeof *s, "what writes checkpoints");
    s->trainer = t;
    mm_status status = MM_OK;
    for (int part = 0; part < MMI_PARTS && status == MM_OK; part++) {
        mmi_tensor_list list = { 0 };
        status = mmi_part_list(&list, (mmi_part)part, t);
        s->room += bytes_of(&list);
        mmi_tensors_free(&list);
    }
    if (status == MM_OK && !(s->copy = mmi_alloc(s->room, 1)))
        status = mmi_fail_memory(s->room, "a copy of what checkpoints hold");
    if (status == MM_OK)
        *out = s;
    else
        mmi_saver_free(s);
    return status;
}

void mmi_saver_free(mmi_saver *s)
{
    if (!s)
        return;
    mmi_thread_join(s->thread);
    mmi_checkpoint_drop(&s->checkpoint);
    mmi_free(s->copy);
    mmi_free(s);
}

static void write_beside(void *arg)
{
    mmi_saver *s = arg;
    s->status = mmi_checkpoint_write(&s->checkpoint, s->trainer);
    if (s->status != MM_OK) /* the story is this thread's: take it along */
        snprintf(s->message, sizeof s->message, "%s", mm_last_error());
}

mm_status mmi_checkpoint_wait(mm_trainer *t)
{
    mmi_saver *s = t->saver;
    if (!s || !s->thread)
        return MM_OK;
    mmi_thread_join(s->thread);
    s->thread = NULL;
    mmi_checkpoint_drop(&s->checkpoint);
    if (s->status == MM_OK)
        return MM_OK;
    t->saved_step = -1;
    return mmi_fail(s->status, "%s", s->message);
}

/* Let the lists point to a copy of their tensors. */
static mm_status copy_tensors(mmi_saver *s)
{
    size_t used = 0;
    for (int part = 0; part < MMI_PARTS; part++)
        used += bytes_of(&s->checkpoint.parts[part]);
    if (!mmi_grow(&s->copy, &s->room, used, 1)) /* a stage's tensors may have become more */
        return mmi_fail_memory(used, "a copy of what checkpoints hold");
    used = 0;
    for (int part = 0; part < MMI_PARTS; part++) {
        mmi_tensor_list *list = &s->checkpoint.parts[part];
        for (size_t i = 0; i < list->count; i++) {
            mmi_st_entry *e = &list->entries[i];
            memcpy(s->copy + used, e->data, e->bytes);
            e->data = s->copy + used;
            used += mmi_align_up(e->bytes);
        }
    }
    return MM_OK;
}

static mm_status start(mmi_saver *s, const mm_trainer *t)
{
    mm_status status = mmi_checkpoint_gather(&s->checkpoint, t);
    if (status == MM_OK)
        status = copy_tensors(s);
    if (status == MM_OK)
        status = mmi_thread_start(&s->thread, write_beside, s);
    if (status != MM_OK)
        mmi_checkpoint_drop(&s->checkpoint);
    return status;
}

static mm_status save_now(const mm_trainer *t)
{
    mmi_checkpoint c;
    mm_status status = mmi_checkpoint_gather(&c, t);
    if (status == MM_OK)
        status = mmi_checkpoint_write(&c, t);
    mmi_checkpoint_drop(&c);
    return status;
}

mm_status mmi_checkpoint_save(mm_trainer *t, bool beside)
{
    mm_status status = mmi_checkpoint_wait(t);
    if (status != MM_OK)
        return status;
    if (mmi_parallel_rank(t) > 0) {
        t->saved_step = t->now.step;
        return MM_OK;
    }
    status = beside && t->saver ? start(t->saver, t) : save_now(t);
    if (status == MM_OK)
        t->saved_step = t->now.step;
    return status;
}

static mm_status save(mm_trainer *t)
{
    if (!t->output)
        return mmi_fail(MM_ERR_STATE, "mm_trainer_save: the trainer has no output directory");
    if (!mmi_parallel_can_save(t))
        return mmi_fail(MM_ERR_STATE, "mm_trainer_save: between two updates no rank has all %s",
                        mmi_trainer_accumulated(t) > 0 ? "gradients" : "answers that they learn from");
    mm_status status = mmi_parallel_rank(t) == 0 ? mmi_make_directory(t->output) : MM_OK;
    return status == MM_OK ? mmi_checkpoint_save(t, false) : status;
}

mm_status mm_trainer_save(mm_trainer *t)
{
    if (!t)
        return mmi_fail(MM_ERR_ARG, "mm_trainer_save: trainer is NULL");
    if (mmi_trainer_is_mine(t))
        return save(t);
    mm_status status = mmi_trainer_enter(t, "mm_trainer_save");
    if (status != MM_OK)
        return status;
    status = save(t);
    mmi_trainer_leave(t);
    return status;
}
