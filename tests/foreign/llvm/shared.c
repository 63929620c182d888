// LDS: reductions, scans, transposition, tiles, narrow accesses.
// SPDX-License-Identifier: Apache-2.0
#include "corpus.h"

KERNEL(256) reduce(GLOBAL const float *a, GLOBAL float *out) {
  SHARED float s[256];
  s[LANE] = a[GROUP * 256 + LANE];
  for (int width = 128; width > 0; width >>= 1) {
    barrier();
    if (LANE < width) s[LANE] += s[LANE + width];
  }
  if (LANE == 0) out[GROUP] = s[0];
}

KERNEL(256) reduce_length(GLOBAL const float *a, GLOBAL float *out, int n) {
  SHARED float s2[256];
  float sum = 0;
  for (int i = LANE; i < n; i += 256) sum += a[GROUP * n + i];
  s2[LANE] = sum;
  barrier();
  for (int width = 128; width > 0; width >>= 1) {
    if (LANE < width) s2[LANE] += s2[LANE + width];
    barrier();
  }
  if (LANE == 0) out[GROUP] = s2[0];
}

KERNEL(256) transpose(GLOBAL const float *a, GLOBAL float *b, int n) {
  SHARED float tile[32][33];
  int x = LANE & 31, y = LANE >> 5;
  for (int r = y; r < 32; r += 8) tile[r][x] = a[(GROUP * 32 + r) * 32 + x];
  barrier();
  for (int r = y; r < 32; r += 8) b[r * n + GROUP * 32 + x] = tile[x][r];
}

KERNEL(256) scan(GLOBAL const u32 *a, GLOBAL u32 *b) {
  SHARED u32 pair[2][256];
  int now = 0;
  pair[0][LANE] = a[GROUP * 256 + LANE];
  for (int step = 1; step < 256; step <<= 1) {
    barrier();
    u32 v = pair[now][LANE];
    if (LANE >= step) v += pair[now][LANE - step];
    now ^= 1;
    pair[now][LANE] = v;
  }
  b[GROUP * 256 + LANE] = pair[now][LANE];
}

KERNEL(128) stencil(GLOBAL const float *a, GLOBAL float *b, int n) {
  SHARED float halo[130];
  int i = GROUP * 128 + LANE;
  halo[LANE + 1] = i < n ? a[i] : 0.0f;
  if (LANE == 0) halo[0] = i > 0 ? a[i - 1] : 0.0f;
  if (LANE == 127) halo[129] = i + 1 < n ? a[i + 1] : 0.0f;
  barrier();
  if (i < n) b[i] = 0.25f * halo[LANE] + 0.5f * halo[LANE + 1] + 0.25f * halo[LANE + 2];
}

// Two tiles of LDS: while one is multiplied, the next is on its way through registers.
KERNEL(256) matmul_tiles(GLOBAL const float *a, GLOBAL const float *b, GLOBAL float *c, int depth) {
  SHARED float left[2][16][17];
  SHARED float right[2][16][16];
  int x = LANE & 15, y = LANE >> 4;
  float sum = 0;
  left[0][y][x] = a[(GROUP * 16 + y) * depth + x];
  right[0][y][x] = b[y * 16 + x];
  barrier();
  int tiles = depth >> 4;
  for (int t = 0; t < tiles; t++) {
    float next_left = 0, next_right = 0;
    if (t + 1 < tiles) {
      next_left = a[(GROUP * 16 + y) * depth + 16 * (t + 1) + x];
      next_right = b[(16 * (t + 1) + y) * 16 + x];
    }
    for (int k = 0; k < 16; k++) sum += left[t & 1][y][k] * right[t & 1][k][x];
    left[~t & 1][y][x] = next_left;
    right[~t & 1][y][x] = next_right;
    barrier();
  }
  c[(GROUP * 16 + y) * 16 + x] = sum;
}

// Every bin is counted by one work-item.
KERNEL(64) histogram(GLOBAL const u8 *a, GLOBAL u32 *bins, int n) {
  SHARED u8 copy[1024];
  for (int i = LANE; i < n; i += 64) copy[i] = a[GROUP * n + i];
  barrier();
  u32 count = 0;
  for (int i = 0; i < n; i++) count += copy[i] == LANE;
  bins[GROUP * 64 + LANE] = count;
}

KERNEL(64) reverse_wide(GLOBAL const u32x4 *a, GLOBAL u32x4 *b, GLOBAL u16 *narrow) {
  SHARED u32x4 quads[64];
  SHARED u16 halves[64];
  u32x4 v = a[GROUP * 64 + LANE];
  quads[LANE] = v;
  halves[LANE] = (u16)(v.x >> 5);
  barrier();
  b[GROUP * 64 + LANE] = quads[63 - LANE] + v;
  narrow[GROUP * 64 + LANE] = halves[LANE ^ 21];
}

KERNEL(512) row_softmax(GLOBAL const float *a, GLOBAL float *b, u32 n) {
  SHARED float part[8];
  u32 lane = LANE & 63, wave = LANE >> 6;
  float top = -__builtin_inff();
  for (u32 i = LANE; i < n; i += 512) top = __builtin_fmaxf(top, a[GROUP * n + i]);
  for (u32 d = 32; d > 0; d >>= 1)
    top = __builtin_fmaxf(top, __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(
                                   4 * (lane ^ d), __builtin_bit_cast(int, top))));
  if (lane == 0) part[wave] = top;
  barrier();
  for (int w = 0; w < 8; w++) top = __builtin_fmaxf(top, part[w]);
  float sum = 0;
  for (u32 i = LANE; i < n; i += 512)
    sum += __builtin_amdgcn_exp2f((a[GROUP * n + i] - top) * 1.44269504f);
  for (u32 d = 32; d > 0; d >>= 1)
    sum += __builtin_bit_cast(
        float, __builtin_amdgcn_ds_bpermute(4 * (lane ^ d), __builtin_bit_cast(int, sum)));
  barrier();
  if (lane == 0) part[wave] = sum;
  barrier();
  sum = 0;
  for (int w = 0; w < 8; w++) sum += part[w];
  float scale = __builtin_amdgcn_rcpf(sum);
  for (u32 i = LANE; i < n; i += 512)
    b[GROUP * n + i] = __builtin_amdgcn_exp2f((a[GROUP * n + i] - top) * 1.44269504f) * scale;
}
