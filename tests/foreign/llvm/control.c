// Control flow: loops of unknown length, divergence, nesting, work on scalars.
// SPDX-License-Identifier: Apache-2.0
#include "corpus.h"

KERNEL(64) collatz(GLOBAL const u32 *a, GLOBAL u32 *c) {
  int i = GROUP * 64 + LANE;
  u32 x = a[i], steps = 0;
  while (x != 1) {
    x = x & 1 ? 3 * x + 1 : x >> 1;
    steps++;
  }
  c[i] = steps;
}

KERNEL(64) nested_branches(GLOBAL const int *a, GLOBAL const int *b, GLOBAL int *c) {
  int i = GROUP * 64 + LANE;
  int x = a[i], y = 0;
  if (x > 0) {
    if (x & 1) {
      y = b[x & 63] + 3;
      if (y > 100) y -= b[y & 63];
    } else {
      for (int k = 0; k < (x & 15); k++) y += b[k] * k;
    }
  } else if (x < -50) {
    y = -x;
  } else {
    y = b[-x] ^ 7;
  }
  c[i] = y;
}

KERNEL(64) switch_table(GLOBAL const int *a, GLOBAL int *c) {
  int i = GROUP * 64 + LANE;
  int x = a[i], y;
  switch (x & 7) {
  case 0: y = x * 3; break;
  case 1: y = x - 77; break;
  case 2: y = x ^ 0x55; break;
  case 3: y = x << 3; break;
  case 5: y = ~x; break;
  case 6: y = x >> 2; break;
  default: y = 1;
  }
  c[i] = y;
}

KERNEL(64) binary_search(GLOBAL const int *sorted, GLOBAL const int *keys, GLOBAL int *c, int n) {
  int i = GROUP * 64 + LANE;
  int low = 0, high = n;
  while (low < high) {
    int middle = (low + high) >> 1;
    if (sorted[middle] < keys[i]) low = middle + 1;
    else high = middle;
  }
  c[i] = low;
}

KERNEL(64) early_exit(GLOBAL const float *a, GLOBAL int *c, int n, float limit) {
  int i = GROUP * 64 + LANE, k = 0;
  float sum = 0;
  for (; k < n; k++) {
    sum += a[k * 64 + (LANE)];
    if (sum > limit) break;
  }
  c[i] = k;
}

// Uniform work: the arguments' arrays are read with scalar loads, the loop runs on scalars.
KERNEL(64) scalar_work(CONSTANT u32 *table, GLOBAL u32 *c, int n) {
  u32 a = 1, b = 0, m = ~0u;
  u64 wide = 0;
  for (int k = 0; k < n; k++) {
    u32 t = table[k];
    a = a * t + (t >> 3);
    b ^= t << (k & 31);
    m = t < m ? t : m;
    wide += (u64)t * a;
    if (t & 0x100) b = __builtin_bitreverse32(b);
  }
  c[(GROUP * 64 + LANE) * 4] = a + GROUP;
  c[(GROUP * 64 + LANE) * 4 + 1] = b;
  c[(GROUP * 64 + LANE) * 4 + 2] = m + __builtin_popcount(a);
  c[(GROUP * 64 + LANE) * 4 + 3] = (u32)(wide >> 17);
}

KERNEL(64) nested_loops(GLOBAL const float *a, GLOBAL const float *b, GLOBAL float *c, int rows,
                        int depth) {
  int column = GROUP * 64 + LANE;
  for (int r = 0; r < rows; r++) {
    float sum = 0, next = b[column];
    for (int k = 0; k < depth; k++) {
      float now = next;
      if (k + 1 < depth) next = b[(k + 1) * 128 + column];
      sum += a[r * depth + k] * now;
    }
    c[r * 128 + column] = sum;
  }
}

KERNEL(64) group_ids(GLOBAL u32 *c) {
  u32 x = GROUP, y = __builtin_amdgcn_workgroup_id_y(), z = __builtin_amdgcn_workgroup_id_z();
  u32 inside = LANE + 8 * __builtin_amdgcn_workitem_id_y() + 32 * __builtin_amdgcn_workitem_id_z();
  c[((z * 3 + y) * 2 + x) * 64 + inside] = x + 10 * y + 100 * z + 1000 * inside;
}

KERNEL(64) atomic_sum(GLOBAL const u32 *a, GLOBAL u32 *sum) {
  __atomic_fetch_add(sum, a[GROUP * 64 + LANE], __ATOMIC_RELAXED);
}
