/* The one source of randomness: Philox4x32-10, a counter-based generator (Salmon et al., "Parallel random numbers: as
 * easy as 1, 2, 3", 2011). A number depends on (seed, stream, index) alone, never on what was drawn before. */
#ifndef MMI_BASE_RANDOM_H
#define MMI_BASE_RANDOM_H

#include <stdint.h>

/* Streams, so that two uses of one seed never meet. The low 32 bits of a stream are the user's (a tensor, an epoch). */
enum {
    MMI_STREAM_INIT = 1,
    MMI_STREAM_SHUFFLE = 2,
    MMI_STREAM_DROPOUT = 3,
    MMI_STREAM_SAMPLE = 4,
    MMI_STREAM_ADAPTER = 5,        /* A of an adapter */
    MMI_STREAM_ADAPTER_DROPOUT = 6,
    MMI_STREAM_SECRET = 7          /* the one seed that nobody gives, secret.c's */
};
#define MMI_STREAM(purpose, number) (((uint64_t)(purpose) << 32) | (uint32_t)(number))

/* Its constants, for kernels that make many blocks at a time. */
#define MMI_PHILOX_ROUNDS 10
#define MMI_PHILOX_MULTIPLY_0 0xD2511F53u
#define MMI_PHILOX_MULTIPLY_1 0xCD9E8D57u
#define MMI_PHILOX_KEY_0 0x9E3779B9u
#define MMI_PHILOX_KEY_1 0xBB67AE85u

/* Four 32-bit numbers for block `index`. */
void mmi_random_block(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t index);

/* In [0, 1), 53 bits. */
double mmi_random_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* out[i] = deviation · N(0, 1) number first + i. */
void mmi_random_normal(float *out, int64_t n, float deviation, uint64_t seed, uint64_t stream, uint64_t first);

/* The image of `index` under a permutation of [0, n) that (seed, stream) picks: a Feistel network walked until it lands
 * inside. Needs no table, so any place of an epoch can be looked up. n ≥ 1, index < n. */
uint64_t mmi_random_permute(uint64_t index, uint64_t n, uint64_t seed, uint64_t stream);

#endif
