#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "model/model.h"
#include "run/context.h"
#include "train/optimizer.h"

/* Elements of one piece of work: a few of its four arrays fit a core's cache. */
#define PIECE ((int64_t)1 << 14)

MMI_OPTIONS_INIT(mm_adamw_options, MM_ADAMW_OPTIONS_INIT)
MMI_OPTIONS_INIT(mm_step, MM_STEP_INIT)

mm_status mmi_adamw_check(const mm_adamw_options *o)
{
    if (!(o->beta1 >= 0 && o->beta1 < 1))
        return mmi_fail(MM_ERR_ARG, "adamw: beta1 is %g, it must be in [0, 1)", o->beta1);
    if (!(o->beta2 >= 0 && o->beta2 < 1))
        return mmi_fail(MM_ERR_ARG, "adamw: beta2 is %g, it must be in [0, 1)", o->beta2);
    if (!(o->eps > 0) || !isfinite(o->eps))
        return mmi_fail(MM_ERR_ARG, "adamw: eps is %g, it must be above 0", o->eps);
    if (!(o->weight_decay >= 0) || !isfinite(o->weight_decay))
        return mmi_fail(MM_ERR_ARG, "adamw: weight_decay is %g, it must be from 0 up", o->weight_decay);
    if (o->decay != MM_DECAY_ALL && o->decay != MM_DECAY_MATRICES)
        return mmi_fail(MM_ERR_ARG, "adamw: decay is %d, it must be MM_DECAY_ALL or MM_DECAY_MATRICES", (int)o->decay);
    if (o->reserved != 0)
        return mmi_fail(MM_ERR_ARG, "adamw: reserved is %d, it must be 0", (int)o->reserved);
    return MM_OK;
}

static mm_status read_options(mm_adamw_options *o, const mm_adamw_options *given)
{
    *o = (mm_adamw_options)MM_ADAMW_OPTIONS_INIT;
    mm_status status = mmi_options_read(o, sizeof *o, given, "mm_adamw_options");
    return status == MM_OK ? mmi_adamw_check(o) : status;
}

static mm_status create(mm_model *model, mm_adapter *adapter, mm_adamw_options o, bool muon, mm_optimizer **out)
{
    mmi_trained trained = { .layout = mmi_model_layout(model), .adapter = adapter, .patterns = o.trainable };
    mmi_moments at = muon ? mmi_muon_place(&trained, NULL) : mmi_adamw_place(&trained, NULL);
    size_t state, handle;
    mmi_optimizer_bytes(mmi_trained_count(&trained), &at, &state, &handle);
    mm_optimizer *optimizer = mmi_calloc(1, handle);
    float *moments = mmi_calloc(1, state);
    if (!optimizer || !moments) {
        mmi_free(optimizer);
        mmi_free(moments);
        return mmi_fail_memory(state, "an optimizer's moments");
    }
    optimizer->model = mmi_model_hold(model);
    optimizer->adapter = adapter ? mmi_adapter_hold(adapter) : NULL;
    optimizer->options = o;
    optimizer->options.trainable = NULL; /* the caller's memory; offsets tell it from now on */
    optimizer->at = muon ? mmi_muon_place(&trained, optimizer->offsets) : mmi_adamw_place(&trained, optimizer->offsets);
    optimizer->moments = moments;
    optimizer->work = moments + (at.first + at.second) / sizeof(float);
    *out = optimizer;
    return MM_OK;
}

mm_status mmi_optimizer_create(mm_model *model, const mm_adamw_options *o, bool muon, const char *function,
                               mm_optimizer **out)
{
    const mmi_trained trained = { .layout = mmi_model_layout(model), .patterns = o->trainable };
    mm_status status = mmi_trained_check(&trained);
    if (status != MM_OK)
        return status;
    if (!mmi_model_can_train(model))
        return mmi_fail(MM_ERR_STATE, "%s: the weights can't be trained: they are mapped or not float32", function);
    return create(model, NULL, *o, muon, out);
}

mm_status mm_adamw_create(mm_model *model, const mm_adamw_options *options, mm_optimizer **out)
{
    if (!model || !out)
        return mmi_fail(MM_ERR_ARG, "mm_adamw_create: %s is NULL", model ? "out" : "model");
    mm_adamw_options o;
    mm_status status = read_options(&o, options);
    return status == MM_OK ? mmi_optimizer_create(model, &o, false, "mm_adamw_create", out) : status;
}

mm_status mm_adamw_create_adapter(mm_adapter *adapter, const mm_adamw_options *options, mm_optimizer **out)
{
    if (!adapter || !out)
        return mmi_fail(MM_ERR_ARG, "mm_adamw_create_adapter: %s is NULL", adapter ? "out" : "adapter");
    mm_adamw_options o;
    mm_status status = read_options(&o, options);
    if (status == MM_OK && o.trainable)
        status = mmi_fail(MM_ERR_ARG, "mm_adamw_create_adapter: trainable is for models: of an adapter all is trained");
    return status == MM_OK ? create(mm_adapter_model(adapter), adapter, o, false, out) : status;
}

void mm_optimizer_free(mm_optimizer *optimizer)
{
    if (!optimizer)
        return;
    mm_adapter_free(optimizer->adapter);
    mm_model_free(optimizer->model);
    mmi_free(optimizer->moments);
    mmi_free(optimizer);
}

int64_t mm_optimizer_steps(const mm_optimizer *optimizer)
{
    return optimizer ? optimizer->steps : 0;
}

mmi_trained mmi_optimizer_trained(const mm_optimizer *optimizer)
{
    return (mmi_trained){ .layout = mmi_model_layout(optimizer->model), .adapter = optimizer->adapter };
}

float *mmi_optimizer_first(const mm_optimizer *optimizer, int64_t index)
{
    size_t offset = optimizer->offsets[index];
    return offset != MMI_FROZEN ? optimizer->moments + offset / sizeof(float) : NULL;
}

float *mmi_optimizer_second(const mm_optimizer *optimizer, int64_t index)
{
    size_t offset = optimizer->offsets[index];
    if (offset == MMI_FROZEN || offset >= optimizer->at.second)
        return NULL;
    return optimizer->moments + (optimizer->at.first + offset) / sizeof(float);
}

/* One tensor's update, for the pool. */
typedef struct update {
    const mmi_kernels *k;
    const mm_adamw_options *options;
    float *w, *m, *v;
    const float *g;
    int64_t elements;
    double grad_scale, lr, decay, correction1, correction2;
} update;

static void update_piece(void *arg, int64_t piece, int worker)
{
    const update *u = arg;
    (void)worker;
    int64_t first, last;
    mmi_piece_rows(piece, PIECE, u->elements, &first, &last);
    u->k->adamw(u->w + first, u->m + first, u->v + first, u->g + first, last - first, u->grad_scale, u->lr,
                u->options->beta1, u->options->beta2, u->options->eps, u->decay, u->correction1, u->correction2);
}

/* Whether weight decay pulls at a tensor. */
static bool decays(const mmi_tensor *tensor, int32_t decay)
{
    return decay == MM_DECAY_ALL || (tensor->rank == 2 && tensor->role != MMI_EMBED);
}

static float *weights_of(const mm_optimizer *optimizer, int64_t index)
{
    return optimizer->adapter ? mmi_adapter_room(optimizer->adapter, index) :
                                mmi_model_trainable(optimizer->model, index);
}

static void update_all(mm_optimizer *optimizer, mm_context *context, double lr, double grad_scale)
{
    const mmi_exec *exec = mmi_context_exec(context);
    const mmi_trained trained = mmi_optimizer_trained(optimizer);
    const mm_adamw_options *o = &optimizer->options;
    double t = (double)(optimizer->steps + 1);
    update u = { .k = &exec->k,
                 .options = o,
                 .grad_scale = grad_scale,
                 .lr = lr,
                 .correction1 = 1 - pow(o->beta1, t),
                 .correction2 = 1 - pow(o->beta2, t) };
    for (int64_t i = 0; i < mmi_trained_count(&trained); i++) {
        mmi_tensor tensor;
        u.g = mmi_context_grads(context, i);
        if (!u.g)
            continue;
        mmi_trained_tensor(&trained, i, &tensor);
        u.w = weights_of(optimizer, i);
        u.m = mmi_optimizer_first(optimizer, i);
        u.v = mmi_optimizer_second(optimizer, i);
        u.elements = tensor.elements;
        u.decay = decays(&tensor, o->decay) ? o->weight_decay : 0;
        if (u.v)
            mmi_pool_run(exec->pool, mmi_pieces(u.elements, PIECE), update_piece, &u);
        else
            mmi_muon_update(optimizer, exec, u.w, u.m, u.g, &tensor, grad_scale, lr, u.decay);
    }
}

mm_status mmi_step_check(const mm_step *s, const char *what)
{
    if (!(s->learning_rate >= 0) || !isfinite(s->learning_rate))
        return mmi_fail(MM_ERR_ARG, "%s: learning_rate is %g, it must be from 0 up", what, s->learning_rate);
    if (!(s->max_grad_norm >= 0) || !isfinite(s->max_grad_norm))
        return mmi_fail(MM_ERR_ARG, "%s: max_grad_norm is %g, it must be from 0 up", what, s->max_grad_norm);
    return MM_OK;
}

double mmi_step_scale(const mm_step *s)
{
    return s->max_grad_norm > 0 ? fmin(1, s->max_grad_norm / (s->grad_norm + 1e-6)) : 1;
}

/* The context trains the same thing, and no tensor that the optimizer takes for frozen. */
static mm_status check_trained(const mm_optimizer *optimizer, const mm_context *context)
{
    const mmi_trained own = mmi_optimizer_trained(optimizer), theirs = mmi_context_trained(context);
    if (mm_context_model(context) != optimizer->model && !optimizer->adapter)
        return mmi_fail(MM_ERR_ARG, "mm_optimizer_step: the context runs another model than the optimizer's");
    if (own.adapter != theirs.adapter)
        return mmi_fail(MM_ERR_ARG, "mm_optimizer_step: the context trains %s, the optimizer is for %s",
                        theirs.adapter ? own.adapter ? "another adapter" : "an adapter" : "no adapter",
                        own.adapter ? "one" : "the model");
    for (int64_t i = 0; i < mmi_trained_count(&own); i++) {
        char name[MMI_TRAINED_NAME_SIZE];
        if (!mmi_context_grads(context, i) || mmi_optimizer_first(optimizer, i))
            continue;
        mmi_trained_name(&own, i, name);
        return mmi_fail(MM_ERR_ARG,
                        "mm_optimizer_step: the context trains %s, which the optimizer's trainable leaves out", name);
    }
    return MM_OK;
}

static mm_status check_step(const mm_optimizer *optimizer, const mm_context *context, const mm_step *s)
{
    mm_status status = mmi_step_check(s, "mm_optimizer_step");
    if (status == MM_OK && !mmi_context_has_grads(context))
        status = mmi_fail(MM_ERR_STATE, "mm_optimizer_step: the context holds no gradients; plan it for MM_TRAIN");
    return status == MM_OK ? check_trained(optimizer, context) : status;
}

mm_status mm_optimizer_step(mm_optimizer *optimizer, mm_context *context, mm_step *step)
{
    if (!optimizer || !context || !step)
        return mmi_fail(MM_ERR_ARG, "mm_optimizer_step: %s is NULL",
                        !optimizer ? "optimizer" :
                        !context   ? "context" :
                                     "step");
    mm_step s = MM_STEP_INIT;
    mm_status status = mmi_options_read(&s, sizeof s, step, "mm_step");
    if (status == MM_OK)
        status = check_step(optimizer, context, &s);
    if (status == MM_OK)
        status = mm_grad_norm(context, &s.grad_norm);
    if (status != MM_OK)
        return status;
    if (!isfinite(s.grad_norm))
        return mmi_fail(MM_ERR_NUMERIC, "the norm of the gradients is %g", s.grad_norm);
    update_all(optimizer, context, s.learning_rate, mmi_step_scale(&s));
    optimizer->steps++;
    if (optimizer->adapter)
        mm_adapter_written(optimizer->adapter);
    else
        mm_model_written(optimizer->model);
    return mmi_result_write(step, &s, sizeof s, "mm_step");
}
