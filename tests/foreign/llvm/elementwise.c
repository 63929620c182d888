// One result an element: memory widths, 64-bit addresses, divisions, bits, conversions.
// SPDX-License-Identifier: Apache-2.0
#include "corpus.h"

KERNEL(256) vector_add(GLOBAL const float *a, GLOBAL const float *b, GLOBAL float *c, int n) {
  int i = GROUP * 256 + LANE;
  if (i < n) c[i] = a[i] + b[i];
}

KERNEL(256) grid_stride(GLOBAL const float *x, GLOBAL float *y, float alpha, int n, int groups) {
  for (int i = GROUP * 256 + LANE; i < n; i += groups * 256) y[i] = alpha * x[i] + y[i];
}

KERNEL(64) polynomial(GLOBAL const f32x4 *x, GLOBAL f32x4 *y) {
  f32x4 v = x[GROUP * 64 + LANE];
  f32x4 r = v * 0.25f + 1.5f;
  for (int i = 0; i < 3; i++) r = r * v - 0.125f;
  y[GROUP * 64 + LANE] = r;
}

KERNEL(128) gather(GLOBAL const i64 *index, GLOBAL const double *table, GLOBAL double *out) {
  int i = GROUP * 128 + LANE;
  out[i] = table[index[i]];
}

KERNEL(64) divide_float(GLOBAL const float *a, GLOBAL const float *b, GLOBAL float *c) {
  int i = GROUP * 64 + LANE;
  c[i] = a[i] / b[i];
}

KERNEL(64) square_root(GLOBAL const float *a, GLOBAL float *c) {
  int i = GROUP * 64 + LANE;
  c[i] = __builtin_sqrtf(a[i]);
}

KERNEL(64) divide_integer(GLOBAL const u32 *a, GLOBAL const u32 *b, GLOBAL u32 *c) {
  int i = GROUP * 64 + LANE;
  int x = a[i], y = b[i] | 1;
  c[4 * i] = a[i] / b[i];
  c[4 * i + 1] = a[i] % 7u;
  c[4 * i + 2] = x / y;
  c[4 * i + 3] = x % 100;
}

KERNEL(64) divide_long(GLOBAL const u64 *a, GLOBAL const u64 *b, GLOBAL u64 *c) {
  int i = GROUP * 64 + LANE;
  c[2 * i] = a[i] / b[i];
  c[2 * i + 1] = a[i] % b[i];
}

KERNEL(64) long_arithmetic(GLOBAL const i64 *a, GLOBAL const i64 *b, GLOBAL i64 *c) {
  int i = GROUP * 64 + LANE;
  i64 x = a[i], y = b[i];
  c[6 * i] = x * y;
  c[6 * i + 1] = x - y;
  c[6 * i + 2] = (x << (y & 63)) + (x >> (y & 31));
  c[6 * i + 3] = (i64)((u64)x >> (y & 63)) ^ ~y;
  c[6 * i + 4] = x < y ? x : y;
  c[6 * i + 5] = (u64)x > (u64)y ? x & y : x | y;
}

KERNEL(64) bit_tricks(GLOBAL const u32 *a, GLOBAL const u32 *b, GLOBAL u32 *c) {
  int i = GROUP * 64 + LANE;
  u32 x = a[i], y = b[i];
  c[8 * i] = __builtin_popcount(x) + __builtin_popcountll((u64)x << 32 | y);
  c[8 * i + 1] = x ? __builtin_clz(x) : 32;
  c[8 * i + 2] = y ? __builtin_ctz(y) : 32;
  c[8 * i + 3] = (x << 7 | x >> 25) ^ __builtin_bswap32(y);
  c[8 * i + 4] = __builtin_bitreverse32(x) + ((x >> 5) & 0x3FF);
  c[8 * i + 5] = (x & y) | (~x & 0x12345678);
  c[8 * i + 6] = (int)(x << 9) >> 20;
  c[8 * i + 7] = (u64)x * y >> 32;
}

KERNEL(64) narrow_types(GLOBAL const u8 *a, GLOBAL const short *b, GLOBAL u16 *c, GLOBAL u8 *d) {
  int i = GROUP * 64 + LANE;
  c[i] = a[i] * 3 + b[i];
  d[i] = (signed char)a[i] >> 1;
}

KERNEL(64) half_floats(GLOBAL const f16 *a, GLOBAL const float *b, GLOBAL f16 *c, GLOBAL float *d) {
  int i = GROUP * 64 + LANE;
  c[i] = (f16)b[i];
  d[i] = (float)a[i] * 2.0f;
}

KERNEL(64) brain_floats(GLOBAL const bf16 *a, GLOBAL const float *b, GLOBAL bf16 *c) {
  int i = GROUP * 64 + LANE;
  c[i] = (bf16)((float)a[i] + b[i]);
}

KERNEL(64) small_floats(GLOBAL const f32x4 *a, GLOBAL u32 *packed, GLOBAL f32x4 *back) {
  int i = GROUP * 64 + LANE;
  f32x4 v = a[i];
  u32 word = __builtin_amdgcn_cvt_pk_fp8_f32(v.x, v.y, 0, 0);
  word = __builtin_amdgcn_cvt_pk_fp8_f32(v.z, v.w, word, 1);
  packed[i] = word;
  f32x2 low = __builtin_amdgcn_cvt_pk_f32_fp8(word, 0);
  f32x2 high = __builtin_amdgcn_cvt_pk_f32_fp8(word, 1);
  back[i] = (f32x4){low.x, low.y, high.x, high.y};
}

KERNEL(64) rounding(GLOBAL const float *a, GLOBAL float *c, GLOBAL int *d) {
  int i = GROUP * 64 + LANE;
  float x = a[i];
  c[4 * i] = __builtin_floorf(x) + __builtin_ceilf(x);
  c[4 * i + 1] = __builtin_truncf(x) - __builtin_rintf(x);
  c[4 * i + 2] = __builtin_fabsf(x) * -x;
  c[4 * i + 3] = __builtin_fminf(__builtin_fmaxf(x, -3.0f), 5.0f);
  d[2 * i] = (int)x;
  d[2 * i + 1] = (u32)__builtin_fabsf(x);
}
