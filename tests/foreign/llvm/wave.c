// Work across the lanes of a wave: DPP, readlane, ballots, permutes, swaps.
// SPDX-License-Identifier: Apache-2.0
#include "corpus.h"

#define DPP(old, value, control, rows, bound)                                                    \
  __builtin_amdgcn_update_dpp(old, value, control, rows, 0xF, bound)

KERNEL(64) dpp_reduce(GLOBAL const int *a, GLOBAL int *c) {
  int v = a[GROUP * 64 + LANE];
  v += DPP(0, v, 0x111, 0xF, 1);  // row_shr:1
  v += DPP(0, v, 0x112, 0xF, 1);
  v += DPP(0, v, 0x114, 0xF, 1);
  v += DPP(0, v, 0x118, 0xF, 1);
  v += DPP(0, v, 0x142, 0xA, 0);  // row_bcast:15
  v += DPP(0, v, 0x143, 0xC, 0);  // row_bcast:31
  c[GROUP * 64 + LANE] = v;
}

KERNEL(64) dpp_softmax(GLOBAL const float *a, GLOBAL float *c) {
  float x = a[GROUP * 64 + LANE], top = x;
#define F(value) __builtin_bit_cast(float, value)
#define I(value) __builtin_bit_cast(int, value)
  top = __builtin_fmaxf(top, F(DPP(I(top), I(top), 0xB1, 0xF, 0)));   // quad_perm:[1,0,3,2]
  top = __builtin_fmaxf(top, F(DPP(I(top), I(top), 0x4E, 0xF, 0)));   // quad_perm:[2,3,0,1]
  top = __builtin_fmaxf(top, F(DPP(I(top), I(top), 0x141, 0xF, 0)));  // row_half_mirror
  top = __builtin_fmaxf(top, F(DPP(I(top), I(top), 0x140, 0xF, 0)));  // row_mirror
  float e = __builtin_amdgcn_exp2f(x - top), sum = e;
  sum += F(DPP(0, I(sum), 0x121, 0xF, 0));  // row_ror:1
  sum += F(DPP(0, I(sum), 0x122, 0xF, 0));
  sum += F(DPP(0, I(sum), 0x124, 0xF, 0));
  sum += F(DPP(0, I(sum), 0x128, 0xF, 0));
  c[GROUP * 64 + LANE] = e * __builtin_amdgcn_rcpf(sum);
}

KERNEL(64) lane_reads(GLOBAL const int *a, GLOBAL int *c, int chosen) {
  int v = a[GROUP * 64 + LANE];
  int first = __builtin_amdgcn_readfirstlane(v);
  int other = __builtin_amdgcn_readlane(v, chosen & 63);
  int again = __builtin_amdgcn_readlane(v, first & 63);
  int w = v;
  __asm__("s_nop 1\n\tv_writelane_b32 %0, %1, 37" : "+v"(w) : "s"(other));
  c[GROUP * 64 + LANE] = w + first * again;
}

KERNEL(64) compact(GLOBAL const int *a, GLOBAL int *c, GLOBAL int *count) {
  int v = a[GROUP * 64 + LANE];
  u64 mask = __builtin_amdgcn_ballot_w64(v > 0);
  int before = __builtin_amdgcn_mbcnt_hi((u32)(mask >> 32), __builtin_amdgcn_mbcnt_lo((u32)mask, 0));
  if (v > 0) c[GROUP * 64 + before] = v;
  if (LANE == 0) count[GROUP] = __builtin_popcountll(mask);
}

KERNEL(64) permutes(GLOBAL const int *a, GLOBAL const int *index, GLOBAL int *c) {
  int v = a[GROUP * 64 + LANE], i = index[GROUP * 64 + LANE];
  int x = __builtin_amdgcn_ds_bpermute(4 * i, v);
  int y = __builtin_amdgcn_ds_permute(4 * i, v);
  int z = __builtin_amdgcn_ds_swizzle(v, 0x041F);  // xor 1
  c[GROUP * 64 + LANE] = x + 3 * y + 5 * z;
}

KERNEL(64) swaps(GLOBAL const u32 *a, GLOBAL const u32 *b, GLOBAL u32 *c) {
  u32 x = a[GROUP * 64 + LANE], y = b[GROUP * 64 + LANE];
  u32x2 wide = __builtin_amdgcn_permlane32_swap(x, y, 0, 0);
  u32x2 rows = __builtin_amdgcn_permlane16_swap(wide.x + 1, wide.y, 0, 0);
  c[2 * (GROUP * 64 + LANE)] = rows.x;
  c[2 * (GROUP * 64 + LANE) + 1] = rows.y;
}
