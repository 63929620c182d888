// Buffers with range checks, loads to LDS, transposing reads, and a matrix product fed by them.
// SPDX-License-Identifier: Apache-2.0
#include "corpus.h"

typedef __amdgpu_buffer_rsrc_t resource;

static inline __attribute__((always_inline)) resource describe(GLOBAL void *p, int bytes) {
  return __builtin_amdgcn_make_buffer_rsrc((void *)p, 0, bytes, 0x00020000);
}

KERNEL(64) buffer_copy(GLOBAL u32 *a, GLOBAL u32 *b, int bytes) {
  resource from = describe(a, bytes), to = describe(b, bytes);
  int place = (GROUP * 64 + LANE) * 16;
  u32x4 v = __builtin_amdgcn_raw_buffer_load_b128(from, place, 0, 0);
  u32 w = __builtin_amdgcn_raw_buffer_load_b32(from, place, 64, 0);
  __builtin_amdgcn_raw_buffer_store_b128(v + w, to, place, 0, 0);
}

KERNEL(256) global_to_lds(GLOBAL const u32 *a, GLOBAL u32 *b) {
  SHARED u32 tile[256];
  int wave = __builtin_amdgcn_readfirstlane(LANE >> 6);
  __builtin_amdgcn_global_load_lds((GLOBAL void *)(a + GROUP * 256 + LANE), (LDS void *)(tile + 64 * wave), 4, 0, 0);
  barrier();
  b[GROUP * 256 + LANE] = tile[255 - LANE];
}

KERNEL(256) buffer_to_lds(GLOBAL u32 *a, GLOBAL u32x4 *b, int bytes) {
  SHARED u32x4 wide_tile[256];
  int wave = __builtin_amdgcn_readfirstlane(LANE >> 6);
  resource from = describe(a, bytes);
  __builtin_amdgcn_raw_ptr_buffer_load_lds(from, (LDS void *)(wide_tile + 64 * wave), 16,
                                           (GROUP * 256 + LANE) * 16, 0, 0, 0);
  barrier();
  b[GROUP * 256 + LANE] = wide_tile[LANE ^ 85];
}

// Two tiles: the next one is on its way while this one is summed.
KERNEL(64) pipelined(GLOBAL const u32 *a, GLOBAL u32 *b, int steps) {
  SHARED u32 ring[2][64];
  u32 sum = 0;
  __builtin_amdgcn_global_load_lds((GLOBAL void *)(a + LANE), (LDS void *)ring[0], 4, 0, 0);
  for (int k = 0; k < steps; k++) {
    barrier();
    if (k + 1 < steps)
      __builtin_amdgcn_global_load_lds((GLOBAL void *)(a + (k + 1) * 64 + LANE),
                                       (LDS void *)ring[~k & 1], 4, 0, 0);
    sum = sum * 3 + ring[k & 1][LANE ^ 5];
  }
  b[LANE] = sum;
}

KERNEL(64) read_transposed(GLOBAL const i16x4 *a, GLOBAL i16x4 *b) {
  SHARED i16x4 halves[64];
  halves[LANE] = a[LANE];
  barrier();
  b[LANE] = __builtin_amdgcn_ds_read_tr16_b64_v4i16((LDS i16x4 *)(halves + LANE));
}
