/**
 * @file minimind.h
 * libminimind: configure, train, save and run MiniMind-family language models inside your own program.
 *
 *     mm_config_create() → mm_model_create() or mm_model_load() → mm_context_create()
 *         → mm_forward(), mm_backward(), mm_optimizer_step()        training, by hand or through mm_trainer_run()
 *         → mm_generate()                                           talking
 *
 * Rules that hold everywhere:
 *  - A function that can fail returns an mm_status and gives its result through its last argument. On failure nothing
 *    is changed unless its page says so, nothing leaks, and mm_last_error() tells the story.
 *  - `create`, `load`, `copy` and `train` give a handle that is yours; `free` takes it, and takes NULL. Views are lent.
 *  - Structs that begin with struct_size are set up with their MM_…_INIT, or with mm_…_init() from other languages. Only
 *    mm_allocator, which has no defaults, is written out.
 *  - Paths are bytes, as the system takes them. A trainer and a report keep theirs as they are given: a host that changes
 *    its working directory while one of these lives gives absolute ones.
 *  - The library prints nothing, ends no process, and reads no environment variable but MM_CPU (which makes it pretend
 *    a lesser processor: "c", "avx2", "avxvnni", "avx512", "vnni" or "bf16"; the last three with "-amd" or "-intel" behind
 *    them also one of that maker, whose kernels use the same instructions in other ways; "neon": an Arm without dot products).
 *  - On Linux and a processor with AMX, looking for kernels (a context, mm_kernels_count()) asks the system for its tiles,
 *    which makes sigaltstack() refuse stacks smaller than sysconf(_SC_MINSIGSTKSZ) from then on; MM_CPU=bf16 does not ask.
 */
#ifndef MINIMIND_H
#define MINIMIND_H

#include <minimind/version.h>
#include <minimind/status.h>
#include <minimind/library.h>
#include <minimind/view.h>
#include <minimind/config.h>
#include <minimind/model.h>
#include <minimind/adapter.h>
#include <minimind/count.h>
#include <minimind/context.h>
#include <minimind/generate.h>
#include <minimind/tokenizer.h>
#include <minimind/chat.h>
#include <minimind/data.h>
#include <minimind/objective.h>
#include <minimind/optim.h>
#include <minimind/policy.h>
#include <minimind/value_head.h>
#include <minimind/comm.h>
#include <minimind/report.h>
#include <minimind/evaluate.h>
#include <minimind/train.h>
#include <minimind/watch.h>

#endif
