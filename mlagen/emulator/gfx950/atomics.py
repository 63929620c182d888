"""What an atomic operation leaves in memory (CDNA4 machine-readable ISA, MUBUF and GLOBAL).

Sums of floats are rounded once, to nearest even, and keep denormals: gfx940 and its successors
support them in the memory's adders (LLVM, memory-atomic-fadd-f32-denormal-support); MODE does not
reach there, so a 16-bit sum that overflows is infinite whatever FP16_OVFL says.
"""

from __future__ import annotations

from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.gfx950.numeric import bf16_of, f16_of, f32_from, f32_of_f16, signed32
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import bits_of, float32, int64


@compiled
def sum_of_halves(x: int, y: int, bf16: int) -> int:
    """One 16-bit sum. The f32 sum of two such floats is exact where rounding it could differ."""
    if bf16:
        total = f32_from((x & 0xFFFF) << 16) + f32_from((y & 0xFFFF) << 16)
        return bf16_of(int64(bits_of(float32(total)))) & 0xFFFF
    total = float32(f32_of_f16(x & 0xFFFF)) + float32(f32_of_f16(y & 0xFFFF))
    return f16_of(int64(bits_of(float32(total))), 0)


@compiled
def atomic_value(op: int, old: int, own: int) -> int:
    """The dword that replaces `old`; `own` is the lane's operand. Both 32 bits, zero-extended."""
    if op == o.A_ADD_F32:
        return int64(bits_of(float32(f32_from(old) + f32_from(own))))
    if op == o.A_PK_ADD_F16 or op == o.A_PK_ADD_BF16:
        bf16 = 1 if op == o.A_PK_ADD_BF16 else 0
        low = sum_of_halves(old, own, bf16)
        return low | sum_of_halves(old >> 16, own >> 16, bf16) << 16
    if op == o.A_ADD:
        return old + own
    if op == o.A_SUB:
        return old - own
    if op == o.A_SMIN:
        return old if signed32(old) < signed32(own) else own
    if op == o.A_UMIN:
        return min(old, own)
    if op == o.A_SMAX:
        return old if signed32(old) > signed32(own) else own
    if op == o.A_UMAX:
        return max(old, own)
    if op == o.A_AND:
        return old & own
    if op == o.A_OR:
        return old | own
    if op == o.A_XOR:
        return old ^ own
    if op == o.A_INC:
        return 0 if old >= own else old + 1
    if op == o.A_DEC:
        return own if old == 0 or old > own else old - 1
    return own  # A_SWAP
