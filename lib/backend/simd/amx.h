/* Tiles: eight registers of 16 rows of 64 bytes, and the products of two of them. */
#ifndef MMI_BACKEND_SIMD_AMX_H
#define MMI_BACKEND_SIMD_AMX_H

#include <string.h>

#include "backend/simd/vf.h"

#define TILE_LINES 16 /* rows of a tile, and 32-bit numbers in each */
#define TILE_BYTES (TILE_LINES * 64)

/* As the processor reads it. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Every tile is whole. */
static const tile_config whole_tiles = {
    .palette = 1,
    .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
    .rows = { TILE_LINES, TILE_LINES, TILE_LINES, TILE_LINES, TILE_LINES, TILE_LINES, TILE_LINES, TILE_LINES },
};

/* Until tiles_end() this thread's tiles are in use, and are saved when another thread runs. */
static inline void tiles_begin(const tile_config *tiles)
{
    __asm__ volatile("" ::"r"(tiles) : "memory"); /* compilers take only its first bytes for being read */
    _tile_loadconfig(tiles);
}

/* Compilers don't see that a tile is read from memory, or that its own is written. */
static inline void tiles_written(void)
{
    __asm__ volatile("" ::: "memory");
}
static inline void tiles_stored(void)
{
    __asm__ volatile("" ::: "memory");
}

static inline void tiles_end(void)
{
    _tile_release();
}

/* amx_panels.c; what else it has is in table.h */
void SIMD(gemm_pack_blocks)(float *to, const void *w, int32_t dtype, int64_t cols, int64_t first, int64_t count,
                            int64_t K);

#endif
