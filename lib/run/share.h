/* Weights that several cores have read at the same time. */
#ifndef MMI_RUN_SHARE_H
#define MMI_RUN_SHARE_H

#include "run/context.h"

/* With a pass of few rows, which each thread reads its part of the weights for: let all threads read the next piece of
 * them together.
 *
 * Decoding reads each weight once a token, and splits matrices among threads so that a line of memory is always read by
 * the same core. Where each core has a second level of cache of its own and the third takes in what leaves it (as in
 * Intel's servers since 2017), such a line moves: out of the third level when it is read, and back into it when it has
 * to make room, unchanged, so that it passes between the two twice. What two cores have held at the same time stays in
 * the third level and is dropped by the second. A core reads it 1.3 to 1.5 times as fast, until something else needs its
 * place. So all of the weights are read in turn, in the first passes of a context and ever after (see
 * docs/performance.md); where caches work in another way this costs half a hundredth of a pass, and changes nothing
 * else. */
void mmi_share_weights(mm_context *ctx, const mmi_pass *pass);

#endif
