/* A context from the inside, for the files of this folder; the functions at the end are for lib/train too. */
#ifndef MMI_RUN_CONTEXT_H
#define MMI_RUN_CONTEXT_H

#include <stdatomic.h>

#include "model/trained.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/rope.h"
#include "nn/vector.h"
#include "run/adapters.h"
#include "run/alone.h"
#include "run/cache.h"
#include "run/plan.h"

/* One run over rows of tokens: what mm_batch and mm_generate() both come down to. Its arrays are the plan's. */
typedef struct mmi_pass {
    int64_t N;    /* rows */
    int64_t B, T; /* for the shapes of what is shown; T = 0: ragged */
    int64_t segments;
    int64_t last; /* rows whose last logits are wanted */
    int32_t mode, outputs;
    bool has_targets;
    uint64_t seed;   /* of dropout and router noise */
    mm_cache *cache; /* NULL: none */
} mmi_pass;

/* Memory for one mm_generate() call, grown when a call needs more than all before. */
typedef struct mmi_generation {
    void *block;
    size_t size;
    mm_cache *cache; /* the context's own, when the caller brings none */
} mmi_generation;

/* How far all threads have read the weights together; see run/share.h. */
typedef struct mmi_sharing {
    bool begun;
    uint64_t version;   /* the model's */
    int64_t bytes, all; /* to read, and those of other tensors, too, which want a place in the caches as well */
    int64_t tensor, at; /* the next byte */
    int64_t passes;     /* since the first */
    int64_t met;        /* how often all threads have read something; for the tests */
    double pass_ended;  /* the last pass of any kind; in seconds */
    bool paused;        /* there was a long time between two passes */
} mmi_sharing;

struct mm_context {
    mm_model *model; /* held */
    const mmi_arch *arch;
    const mmi_layout *layout;
    mmi_limits limits;
    mmi_exec exec;
    mmi_plan plan;
    void *arena;
    mm_adapter *adapter;   /* held: the one that is trained; NULL: the model itself */
    mmi_adapters adapters; /* those it runs with */
    float *grads;          /* NULL: planned for evaluation */
    uint64_t widened;      /* the model's version that plan.vectors holds */
    atomic_int cancelled;  /* lock-free, so that a signal handler may set it */
    atomic_int busy;       /* a call runs */
    mmi_pass pass;         /* the last one */
    bool can_go_back;
    bool owed;         /* within a pass: plan.delta is still to be added to what the next norm reads */
    bool head_is_back; /* the last pass left the loss's gradient by hidden and head, undivided, in the plan */
    double aux_loss;   /* of the last pass */
    mmi_generation generation;
    mmi_sharing sharing;
    mmi_trial trials[MMI_TRIALS];
    size_t grads_size;
    int64_t lowest;   /* the lowest layer with something to learn in or below it; L: only behind the layers */
    size_t offsets[]; /* [tensors of the model] bytes into grads, MMI_FROZEN where a tensor has none; not used where an
                         adapter is trained, which has its own. In evaluation into plan.vectors, for vectors of wide
                         weights */
};

/* What it trains. Its patterns are not kept: offsets tell which tensors have gradients. */
mmi_trained mmi_context_trained(const mm_context *ctx);

/* What the handle takes, for the estimate. */
size_t mmi_context_handle_bytes(const mmi_layout *layout);

/* A parameter by role, with its gradient when there is one; of an expert by its number. */
mmi_param mmi_context_param(const mm_context *ctx, mmi_role role, int64_t layer);
mmi_param mmi_context_expert(const mm_context *ctx, mmi_role role, int64_t layer, int64_t expert);
mmi_norm_params mmi_context_norm(const mm_context *ctx, mmi_role weight, mmi_role bias, int64_t layer);

/* Where dropout stands, in the order of a layer. */
typedef enum mmi_site {
    MMI_SITE_EMBEDDING,
    MMI_SITE_ATTENTION, /* weights */
    MMI_SITE_O,         /* what attention adds */
    MMI_SITE_ROUTER,    /* not dropout but noise */
    MMI_SITE_MID,       /* what a down projection reads */
    MMI_SITE_EXPERT,    /* what an expert gives */
    MMI_SITE_MLP        /* what the feed-forward network adds */
} mmi_site;

/* The dropout at a site as the family has it (table in docs/architecture.md); off in evaluation. `expert`: 0 where
 * there is none. */
mmi_dropout mmi_context_dropout(const mm_context *ctx, const mmi_pass *pass, mmi_site site, int64_t layer,
                                int64_t expert);

/* Run a pass whose arrays are filled in: logits, log-probabilities, hidden states land in the plan. */
mm_status mmi_run_forward(mm_context *ctx, const mmi_pass *pass);

/* Around what writes to the plan: MM_ERR_STATE where a call runs already, as from within one of its callbacks. */
mm_status mmi_context_enter(mm_context *ctx, const char *function);
void mmi_context_leave(mm_context *ctx);

/* True, once, after mm_cancel(). */
bool mmi_context_take_cancel(mm_context *ctx);

/* What the optimizer runs with, and the gradient of tensor `index` of what is trained (NULL in evaluation, or frozen).
 */
bool mmi_context_has_grads(const mm_context *ctx);
const mmi_exec *mmi_context_exec(const mm_context *ctx);
float *mmi_context_grads(const mm_context *ctx, int64_t index);

#endif
