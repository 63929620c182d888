// Types and spellings that the kernels of this folder share. Freestanding C for clang's amdgcn
// target: no runtime library, no OpenCL or HIP headers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long i64;
typedef _Float16 f16;
typedef __bf16 bf16;
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x16 __attribute__((ext_vector_type(16)));
typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef int i32x4 __attribute__((ext_vector_type(4)));
typedef int i32x8 __attribute__((ext_vector_type(8)));
typedef bf16 bf16x4 __attribute__((ext_vector_type(4)));
typedef bf16 bf16x8 __attribute__((ext_vector_type(8)));
typedef f16 f16x2 __attribute__((ext_vector_type(2)));
typedef f16 f16x4 __attribute__((ext_vector_type(4)));
typedef short i16x4 __attribute__((ext_vector_type(4)));

#define GLOBAL __attribute__((address_space(1)))
#define CONSTANT const __attribute__((address_space(4)))
#define SHARED static __attribute__((address_space(3), loader_uninitialized))
#define LDS __attribute__((address_space(3)))
#define KERNEL(items) __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(items, items))) void
#define UNROLL _Pragma("unroll")
#define LANE __builtin_amdgcn_workitem_id_x()
#define GROUP __builtin_amdgcn_workgroup_id_x()

static inline __attribute__((always_inline)) void barrier(void) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
