#include "train/stage.h"

#include "data/loader.h"

static const mmi_stage *const stages[] = { [MM_STAGE_PLAIN] = &mmi_stage_plain, [MM_STAGE_POLICY] = &mmi_stage_policy };

const mmi_stage *mmi_stage_of(int32_t stage)
{
    return stage >= 0 && stage < (int32_t)(sizeof stages / sizeof *stages) ? stages[stage] : NULL;
}

int64_t mmi_stage_uses(const mm_trainer *t)
{
    return t->stage->uses ? t->stage->uses(t) : 1;
}

mm_status mmi_stage_check_rows(const mmi_stage *stage, const mm_loader *loader)
{
    static const char *const names[] = { "text", "conversations", "preferences", "prompts" };
    int32_t kind = mmi_loader_options(loader)->kind;
    if (stage->kinds & 1 << kind)
        return MM_OK;
    return mmi_fail(MM_ERR_UNSUPPORTED, "the loader gives %s, which the stage %s does not learn from", names[kind],
                    stage->name);
}
