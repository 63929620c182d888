// What the emulator does not execute: it has to say so by name, before anything runs.
// SPDX-License-Identifier: Apache-2.0
#include "corpus.h"

KERNEL(64) half_arithmetic(GLOBAL const f16x2 *a, GLOBAL const f16x2 *b, GLOBAL f16x2 *c) {
  int i = GROUP * 64 + LANE;
  c[i] = a[i] * b[i] + a[i];
}

KERNEL(64) doubles(GLOBAL const double *a, GLOBAL const double *b, GLOBAL double *c) {
  int i = GROUP * 64 + LANE;
  c[i] = __builtin_fma(a[i], b[i], a[i]) - b[i];
}

KERNEL(64) atomic_wide_sum(GLOBAL const unsigned long *a, GLOBAL unsigned long *sum) {
  __atomic_fetch_add(sum, a[GROUP * 64 + LANE], __ATOMIC_RELAXED);
}

KERNEL(64) stack_array(GLOBAL const u32 *a, GLOBAL u32 *c, int n) {
  volatile u32 local[64];
  for (int i = 0; i < 64; i++) local[i] = a[i];
  c[GROUP * 64 + LANE] = local[(n + LANE) & 63];
}
