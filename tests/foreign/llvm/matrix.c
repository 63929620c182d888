// Matrix instructions; operands lie in memory as the lanes hold them.
// SPDX-License-Identifier: Apache-2.0
#include "corpus.h"

KERNEL(64) bf16_32x32(GLOBAL const bf16x8 *a, GLOBAL const bf16x8 *b, GLOBAL float *c, int steps) {
  f32x16 sum = 0;
  for (int k = 0; k < steps; k++)
    sum = __builtin_amdgcn_mfma_f32_32x32x16_bf16(a[k * 64 + LANE], b[k * 64 + LANE], sum, 0, 0, 0);
  UNROLL for (int i = 0; i < 16; i++) c[i * 64 + LANE] = sum[i];
}

// The next operands are loaded while these are multiplied.
KERNEL(64) bf16_16x16(GLOBAL const bf16x8 *a, GLOBAL const bf16x8 *b, GLOBAL f32x4 *c, int steps) {
  f32x4 even = 0, odd = 0;
  bf16x8 x = a[LANE], y = b[LANE];
  for (int k = 0; k < steps; k++) {
    int next = k + 1 < steps ? k + 1 : k;
    bf16x8 x2 = a[next * 64 + LANE], y2 = b[next * 64 + LANE];
    if (k & 1) odd = __builtin_amdgcn_mfma_f32_16x16x32_bf16(x, y, odd, 0, 0, 0);
    else even = __builtin_amdgcn_mfma_f32_16x16x32_bf16(x, y, even, 0, 0, 0);
    x = x2;
    y = y2;
  }
  c[LANE] = even + odd * 2.0f;
}

KERNEL(64) bf16_short(GLOBAL const i16x4 *a, GLOBAL const i16x4 *b, GLOBAL f32x4 *c, int steps) {
  f32x4 sum = 0;
  for (int k = 0; k < steps; k++)
    sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a[k * 64 + LANE], b[k * 64 + LANE], sum, 0, 0, 0);
  c[LANE] = sum;
}

KERNEL(64) fp8_16x16(GLOBAL const i64 *a, GLOBAL const i64 *b, GLOBAL f32x4 *c, int steps) {
  f32x4 sum = 0;
  for (int k = 0; k < steps; k++)
    sum = __builtin_amdgcn_mfma_f32_16x16x32_fp8_bf8(a[k * 64 + LANE], b[k * 64 + LANE], sum, 0, 0, 0);
  c[LANE] = sum;
}

KERNEL(64) fp8_32x32x64(GLOBAL const i32x8 *a, GLOBAL const i32x8 *b, GLOBAL float *c, int steps) {
  f32x16 sum = 0;
  for (int k = 0; k < steps; k++)
    sum = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(a[k * 64 + LANE], b[k * 64 + LANE], sum, 0,
                                                          1, 0, 0, 0, 0);
  UNROLL for (int i = 0; i < 16; i++) c[i * 64 + LANE] = sum[i];
}

KERNEL(64) f32_32x32(GLOBAL const float *a, GLOBAL const float *b, GLOBAL float *c, int steps) {
  f32x16 sum = 0;
  for (int k = 0; k < steps; k++)
    sum = __builtin_amdgcn_mfma_f32_32x32x2f32(a[k * 64 + LANE], b[k * 64 + LANE], sum, 0, 0, 0);
  UNROLL for (int i = 0; i < 16; i++) c[i * 64 + LANE] = sum[i];
}

KERNEL(64) f16_32x32(GLOBAL const f16x4 *a, GLOBAL const f16x4 *b, GLOBAL float *c, int steps) {
  f32x16 sum = 0;
  for (int k = 0; k < steps; k++)
    sum = __builtin_amdgcn_mfma_f32_32x32x8f16(a[k * 64 + LANE], b[k * 64 + LANE], sum, 0, 0, 0);
  UNROLL for (int i = 0; i < 16; i++) c[i * 64 + LANE] = sum[i];
}

// 3 x 4 tiles of 32 x 32: 192 accumulators, more than one half of the register file takes.
KERNEL(64) many_accumulators(GLOBAL const bf16x8 *a, GLOBAL const bf16x8 *b, GLOBAL float *c,
                             int steps) {
  f32x16 sum[3][4] = {0};
  for (int k = 0; k < steps; k++) {
    bf16x8 left[3], right[4];
    UNROLL for (int i = 0; i < 3; i++) left[i] = a[(k * 3 + i) * 64 + LANE];
    UNROLL for (int j = 0; j < 4; j++) right[j] = b[(k * 4 + j) * 64 + LANE];
    UNROLL for (int i = 0; i < 3; i++)
      UNROLL for (int j = 0; j < 4; j++)
        sum[i][j] = __builtin_amdgcn_mfma_f32_32x32x16_bf16(left[i], right[j], sum[i][j], 0, 0, 0);
  }
  UNROLL for (int i = 0; i < 3; i++)
    UNROLL for (int j = 0; j < 4; j++)
      UNROLL for (int r = 0; r < 16; r++) c[((i * 4 + j) * 16 + r) * 64 + LANE] = sum[i][j][r];
}

// Scores, a softmax without maximum, and a second product whose operand the first one made.
KERNEL(64) chained_products(GLOBAL const bf16x8 *q, GLOBAL const bf16x8 *k, GLOBAL const bf16x8 *v,
                            GLOBAL float *c, int steps) {
  f32x4 out = 0;
  for (int s = 0; s < steps; s++) {
    f32x4 low = __builtin_amdgcn_mfma_f32_16x16x32_bf16(k[2 * s * 64 + LANE], q[LANE], (f32x4)0, 0, 0, 0);
    f32x4 high =
        __builtin_amdgcn_mfma_f32_16x16x32_bf16(k[(2 * s + 1) * 64 + LANE], q[LANE], (f32x4)0, 0, 0, 0);
    bf16x8 p;
    UNROLL for (int i = 0; i < 4; i++) {
      p[i] = (bf16)__builtin_amdgcn_exp2f(low[i]);
      p[4 + i] = (bf16)__builtin_amdgcn_exp2f(high[i]);
    }
    out = __builtin_amdgcn_mfma_f32_16x16x32_bf16(v[s * 64 + LANE], p, out, 0, 0, 0);
  }
  UNROLL for (int i = 0; i < 4; i++) c[i * 64 + LANE] = out[i];
}
