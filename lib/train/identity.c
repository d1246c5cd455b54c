#include "train/identity.h"

#include <stdio.h>
#include <string.h>

#include <minimind/library.h>

#include "backend/blas.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "model/adapter.h"
#include "model/model.h"
#include "model/show.h"
#include "run/context.h"
#include "train/state.h"

/* The kernels are among them: every rank computes the update for itself, and other kernels round otherwise. "openblas"
 * says only who makes large products: how it does is its core's affair, and all else the processor's. The end of an
 * epoch is the beginning of the next one. */
static bool add_run(mmi_json *to, const mm_trainer *t)
{
    const bool end = mmi_loader_at_end(t->loader);
    const mm_loader_position *at = &t->now.data;
    const mmi_path *path = t->context->limits.path;
    return mmi_json_set_text(to, "library version", mm_version_string()) &&
           mmi_json_set_text(to, "kernels", path->name) &&
           mmi_json_set_text(to, "processor", mmi_path_processor(path)) &&
           mmi_json_set_text(to, "blas core", path->blas ? mmi_blas_core() : NULL) &&
           mmi_json_set_int(to, "step", t->now.step) && mmi_json_set_int(to, "update", t->now.updates) &&
           mmi_json_set_int(to, "last update's step", t->boundary.step) &&
           mmi_json_set_int(to, "total_steps", t->total_steps) && mmi_json_set_int(to, "epoch", at->epoch + end) &&
           mmi_json_set_int(to, "row", end ? 0 : at->row) && mmi_json_set_int(to, "offset", end ? 0 : at->offset);
}

/* How the rows of a validation become batches of each rank. */
static bool add_validation(mmi_json *to, const mm_loader *loader)
{
    mmi_json *own = mmi_json_new_object();
    return mmi_json_set(to, "validation", own) && mmi_state_data(own, loader) &&
           mmi_json_set_int(own, "world", mmi_loader_options(loader)->world);
}

/* What all of them take part in, or what says when. */
static bool add_meetings(mmi_json *to, const mm_trainer *t)
{
    const mm_dataset *validation = t->options.validation ? mmi_loader_dataset(t->options.validation) : NULL;
    return mmi_json_set_int(to, "eval_interval", t->options.eval_interval) &&
           mmi_json_set_int(to, "eval_batches", t->options.eval_batches) &&
           mmi_hash_set(to, "validation_hash", validation ? mmi_dataset_hash(validation) : 0) &&
           (!validation || add_validation(to, t->options.validation)) &&
           mmi_json_set_int(to, "validation's last step", t->health.evaluated_step) &&
           mmi_json_set_int(to, "skipped_steps", t->health.skipped) &&
           mmi_json_set_int(to, "steps learnt from since the last update", mmi_trainer_learnt(t)) &&
           mmi_json_set_text(to, "targets", t->options.adapter ? t->options.adapter->options.targets : NULL);
}

static bool add_config(mmi_json *to, const mm_config *config)
{
    for (int32_t i = 0; i < mm_config_key_count(); i++) {
        char value[MMI_SHOWN];
        const char *name = mmi_config_show(value, config, i);
        if (!mmi_json_set_text(to, name, value))
            return false;
    }
    return true;
}

mm_status mmi_identity_make(mmi_json **out, const mm_trainer *t)
{
    mmi_json *all = mmi_state_options(t);
    if (all && add_run(all, t) && add_meetings(all, t) && add_config(all, mm_model_config(t->model))) {
        *out = all;
        return MM_OK;
    }
    mmi_json_free(all);
    return mmi_fail_memory(4096, "the run's options");
}

static mm_status compare(const char *key, const mmi_json *theirs, const char *them, const mmi_json *own, const char *us)
{
    char *a = NULL, *b = NULL;
    size_t length;
    mm_status status = mmi_json_write(theirs, 0, &a, &length);
    if (status == MM_OK)
        status = mmi_json_write(own, 0, &b, &length);
    if (status == MM_OK && strcmp(a, b) != 0)
        status = mmi_fail(MM_ERR_STATE, "ranks that do not fit together: %s of %s is %s, that of %s is %s", key, them,
                          a, us, b);
    mmi_free(a);
    mmi_free(b);
    return status;
}

mm_status mmi_identity_compare(mmi_json *theirs, const char *them, mmi_json *own, const char *us)
{
    char their_part[64], our_part[64];
    mm_status status = MM_OK;
    for (void *i = mmi_json_first(own); i && status == MM_OK; i = mmi_json_next(own, i)) {
        const char *key = mmi_json_key(i);
        mmi_json *other = mmi_json_get(theirs, key), *here = mmi_json_value(i);
        if (!other)
            return mmi_fail(MM_ERR_STATE, "ranks that do not fit together: %s knows no %s", them, key);
        if (mmi_json_what(here) == MMI_JSON_OBJECT && mmi_json_what(other) == MMI_JSON_OBJECT) {
            snprintf(their_part, sizeof their_part, "%s's %s", them, key);
            snprintf(our_part, sizeof our_part, "%s's %s", us, key);
            status = mmi_identity_compare(other, their_part, here, our_part);
        } else {
            status = compare(key, other, them, here, us);
        }
    }
    return status;
}
