"""Execution of one instruction: operands to rows, the unit's function, results under EXEC."""

from __future__ import annotations

from mlagen.binary.operand import EXEC, M0, SCC, VCC
from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.gfx950.division import div_fixup, div_fmas, div_scale
from mlagen.emulator.gfx950.exchange import check_lane, define_lane, tell_off_lane
from mlagen.emulator.gfx950.lanes import (
    row_high_halves,
    row_low_halves,
    row_mov,
    row_select,
    row_signs,
)
from mlagen.emulator.gfx950.matrix import multiply
from mlagen.emulator.gfx950.numeric import (
    f32_of_e4m3,
    f32_of_e5m2,
    max_f32,
    min_f32,
    scaled_by,
    signed32,
)
from mlagen.emulator.gfx950.scalar import get32, get64, put32, put64, scalar_alu
from mlagen.emulator.gfx950.state import report, scalar_base, vector_row
from mlagen.emulator.gfx950.sub_dword import place_part, select_part
from mlagen.emulator.gfx950.vector import add_carry, alu, compare
from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import (
    bits_of,
    f32_of,
    float32,
    int64,
    load_i64,
    load_u32,
    store_i64,
    store_u32,
    uint32,
    uint64,
)


@compiled
def fill(row: int, value: int) -> None:
    for i in range(64):
        store_u32(row, i, uint32(value))


@spliced
def source_row(context: int, wave: int, p: int, which: int, half: int) -> int:
    """Address of a row that holds source `which` (its dword `half` when it is wide).

    Scalars and constants are broadcast into scratch row `which`.
    """
    kind = load_i64(p, y.P_KIND + 2 * which)
    value = load_i64(p, y.P_KIND + 2 * which + 1)
    if kind == y.S_VECTOR:
        return vector_row(context, wave, value + half)
    row = vector_row(context, wave, y.VECTOR_ROWS + which)
    if kind == y.S_SCALAR:
        fill(row, get32(scalar_base(context, wave), value + half))
    else:
        fill(row, value >> (32 * half))
    return row


@compiled
def signed_row(context: int, wave: int, row: int, which: int, neg: int, absolute: int) -> int:
    """Apply float source modifiers into scratch row `which`."""
    if neg == 0 and absolute == 0:
        return row
    out = vector_row(context, wave, y.VECTOR_ROWS + which)
    clear = 0x7FFFFFFF if absolute else 0xFFFFFFFF
    flip = 0x80000000 if neg else 0
    row_signs(out, row, row, row, clear, flip)
    return out


@compiled
def dpp_lane(control: int, lane: int) -> int:
    """Source lane of a DPP control, -1 when it lies outside (CDNA4 ISA guide, DPP_CTRL)."""
    row = lane & ~15
    inside = lane & 15
    if control < 0x100:
        return (lane & ~3) | ((control >> (2 * (lane & 3))) & 3)
    amount = control & 15
    if control < 0x110:
        return lane + amount if inside + amount < 16 else -1
    if control < 0x120:
        return lane - amount if inside >= amount else -1
    if control < 0x130:
        return row | ((inside - amount) & 15)
    if control == 0x130:
        return lane + 1 if lane < 63 else -1
    if control == 0x134:
        return (lane + 1) & 63
    if control == 0x138:
        return lane - 1
    if control == 0x13C:
        return (lane - 1) & 63
    if control == 0x140:
        return row | (15 - inside)
    if control == 0x141:
        return (lane & ~7) | (7 - (lane & 7))
    if control == 0x142:
        return row - 1 if row > 0 else -1
    if control == 0x143:
        return 31 if lane >= 32 else -1
    return row | amount  # row_newbcast


@compiled
def dpp_row(context: int, wave: int, p: int, row: int, dpp: int, lanes: int) -> int:
    """Permute source 0 into scratch row 0; returns the mask of lanes that are written. A lane that
    takes from one that is off is told. `p`: the program row, `row`: of source 0."""
    out = vector_row(context, wave, y.VECTOR_ROWS + 4)
    control = dpp & 0x1FF
    bound = (dpp >> 9) & 1
    keep = 0
    for lane in range(64):
        enabled = (dpp >> (10 + (lane >> 4))) & 1 and (dpp >> (14 + ((lane >> 2) & 3))) & 1
        source = dpp_lane(control, lane)
        valid = source >= 0 and (lanes >> source) & 1
        value = int64(load_u32(row, source)) if valid else 0
        store_u32(out, lane, uint32(value))
        if enabled and (valid or bound):
            keep |= 1 << lane
        taken = enabled and source >= 0 and not valid and (lanes >> lane) & 1
        if taken and p != load_i64(context, y.C_PATCHED):
            at = (p - load_i64(context, y.C_PROGRAM)) // (8 * y.P_SIZE)
            tell_off_lane(context, wave, at, lane, source)
    return keep


@compiled
def commit(row: int, result: int, lanes: int) -> None:
    """Copy a result row to a register under a lane mask."""
    if lanes == -1:
        row_mov(row, result, result, result, 0, 0)
    else:
        row_select(row, row, result, lanes)


@compiled
def finish_float(row: int, omod: int, clamp_nan: int) -> None:
    """Output modifiers of float results: scale by 2, 4 or 1/2, then clamp to [0, 1]."""
    for i in range(64):
        x = f32_of(load_u32(row, i))
        if omod & 3 == 1:
            x = x * float32(2.0)
        elif omod & 3 == 2:
            x = x * float32(4.0)
        elif omod & 3 == 3:
            x = x * float32(0.5)
        if omod & 4:
            if x != x:
                x = float32(0.0) if clamp_nan else x
            else:
                x = min_f32(max_f32(x, float32(0.0)), float32(1.0))
        store_u32(row, i, bits_of(float32(x)))


@compiled
def indexed(context: int, wave: int, row: int, p: int) -> int:
    """The program row with M0's index added to the operands that s_set_gpr_idx_on selected.

    Returns the address of a patched copy; the registers it names are checked like any others.
    """
    selected = load_i64(p, y.P_FLAGS)
    copy = load_i64(context, y.C_PATCHED)
    for column in range(y.P_SIZE):
        store_i64(copy, column, load_i64(p, column))
    index = get32(scalar_base(context, wave), M0) & 0xFF
    limit = load_i64(context, y.C_VGPRS)
    for which in range(4):
        column = y.P_DST if which == 3 else y.P_KIND + 2 * which + 1
        vector = which == 3 or load_i64(p, y.P_KIND + 2 * which) == y.S_VECTOR
        if vector and (selected >> which) & 1:
            old = load_i64(p, column)
            new = old + index
            if new >= limit:
                report(context, y.UNDEFINED_REGISTER, row, -1, wave, new, 0, 0)
                new = 0  # the hardware uses v0 for a register out of range
            store_i64(copy, column, new)
            accesses = load_i64(p, y.P_WRITES) if which == 3 else load_i64(p, y.P_READS)
            first = y.P_WRITE if which == 3 else y.P_READ
            for i in range(accesses):
                place = first + i * y.READ_SIZE
                if load_i64(p, place) == old:
                    store_i64(copy, place, new)
    return copy


@spliced
def run_valu(context: int, wave: int, p: int) -> None:
    """One 32-bit result a lane."""
    op = load_i64(p, y.P_OP)
    lanes = get64(scalar_base(context, wave), EXEC)
    a = source_row(context, wave, p, 0, 0)
    dpp = load_i64(p, y.P_DPP)
    if dpp:
        lanes &= dpp_row(context, wave, p, a, dpp, lanes)
        a = vector_row(context, wave, y.VECTOR_ROWS + 4)
    b = a
    c = a
    if load_i64(p, y.P_KIND + 2) != y.S_NONE:
        b = source_row(context, wave, p, 1, 0)
    if op != o.V_CNDMASK_B32 and load_i64(p, y.P_KIND + 4) != y.S_NONE:
        c = source_row(context, wave, p, 2, 0)
    mod = load_i64(p, y.P_MOD)
    if mod & 63:
        a = signed_row(context, wave, a, 0, mod & 1, (mod >> 3) & 1)
        b = signed_row(context, wave, b, 1, (mod >> 1) & 1, (mod >> 4) & 1)
        c = signed_row(context, wave, c, 2, (mod >> 2) & 1, (mod >> 5) & 1)
    keep = load_i64(context, y.C_FLUSH)
    dst = vector_row(context, wave, load_i64(p, y.P_DST))
    sdwa = load_i64(p, y.P_AUX + 1)
    if sdwa:
        a = select_part(a, vector_row(context, wave, y.VECTOR_ROWS + 4), sdwa)
        b = select_part(b, vector_row(context, wave, y.VECTOR_ROWS + 5), sdwa >> 4)
    omod = load_i64(p, y.P_OMOD)
    halves = op == o.V_CVT_PK_FP8_F32 or op >= o.V_CVT_PK_BF8_F32
    t = vector_row(context, wave, y.VECTOR_ROWS + 3)
    if lanes == -1 and omod == 0 and sdwa == 0 and not halves:
        t = dst
    if op == o.V_CNDMASK_B32:
        kind = load_i64(p, y.P_KIND + 4)
        value = load_i64(p, y.P_KIND + 5)
        mask = get64(scalar_base(context, wave), value) if kind == y.S_SCALAR else value
        row_select(t, a, b, mask)
    elif op >= o.V_DIV_SCALE_F32 and op <= o.V_DIV_FIXUP_F32:
        run_division(context, wave, p, t, a, b, c)
    else:
        clamp = load_i64(context, y.C_FP8_CLAMP)
        alu(op, t, a, b, c, keep, clamp, load_i64(p, y.P_AUX))
    if halves:
        place_half(t, dst, mod)
    if omod:
        finish_float(t, omod, load_i64(context, y.C_CLAMP_NAN))
    if sdwa:
        place_part(t, dst, sdwa)
    if t != dst:
        commit(dst, t, lanes)


@compiled
def place_half(t: int, dst: int, mod: int) -> None:
    """The lower halves of `t` to the half that op_sel names, the other one as `dst` has it."""
    if mod & (8 << 6):
        row_high_halves(t, dst, t, t, 0, 0)
    else:
        row_low_halves(t, dst, t, t, 0, 0)


@compiled
def run_division(context: int, wave: int, p: int, t: int, a: int, b: int, c: int) -> None:
    """v_div_scale (which also writes a lane mask), v_div_fmas, v_div_fixup."""
    op = load_i64(p, y.P_OP)
    keep = load_i64(context, y.C_FLUSH)
    scalars = scalar_base(context, wave)
    if op == o.V_DIV_SCALE_F32:
        mask = div_scale(t, a, b, c, keep) & get64(scalars, EXEC)
        put64(scalars, load_i64(p, y.P_SDST), mask)
    elif op == o.V_DIV_FMAS_F32:
        div_fmas(t, a, b, c, get64(scalars, VCC), keep)
    else:
        div_fixup(t, a, b, c, keep)


@compiled
def run_packed(context: int, wave: int, p: int) -> None:
    """Packed f32: two results a lane, each half of a source chosen by op_sel / op_sel_hi."""
    op = load_i64(p, y.P_OP)
    lanes = get64(scalar_base(context, wave), EXEC)
    mod = load_i64(p, y.P_MOD)
    keep = load_i64(context, y.C_FLUSH)
    base = load_i64(p, y.P_DST)
    which_op = o.V_FMA_F32
    if op == o.PK_MUL:
        which_op = o.V_MUL_F32
    elif op == o.PK_ADD:
        which_op = o.V_ADD_F32
    for half in range(2):
        t = vector_row(context, wave, y.VECTOR_ROWS + 5 + half)
        select_bits = mod >> 6 if half == 0 else mod >> 10
        neg = mod if half == 0 else mod >> 13
        if op == o.PK_MOV:
            # The low result comes from source 0, the high one from source 1.
            a = source_row(context, wave, p, half, (mod >> (6 + half)) & 1)
            row_mov(t, a, a, a, 0, 0)
            continue
        a = source_row(context, wave, p, 0, select_bits & 1)
        a = signed_row(context, wave, a, 0, neg & 1, 0)
        b = source_row(context, wave, p, 1, (select_bits >> 1) & 1)
        b = signed_row(context, wave, b, 1, (neg >> 1) & 1, 0)
        c = a
        if op == o.PK_FMA:
            c = source_row(context, wave, p, 2, (select_bits >> 2) & 1)
            c = signed_row(context, wave, c, 2, (neg >> 2) & 1, 0)
        alu(which_op, t, a, b, c, keep, 0, 0)
        omod = load_i64(p, y.P_OMOD)
        if omod:
            finish_float(t, omod, load_i64(context, y.C_CLAMP_NAN))
    for half in range(2):
        t = vector_row(context, wave, y.VECTOR_ROWS + 5 + half)
        commit(vector_row(context, wave, base + half), t, lanes)


@compiled
def wide_source(context: int, wave: int, p: int, which: int, low: int, high: int) -> None:
    """Copy both dwords of a 64-bit source to rows of their own."""
    for half in range(2):
        row = source_row(context, wave, p, which, half)
        row_mov(high if half else low, row, row, row, 0, 0)


@compiled
def wide_at(low: int, high: int, lane: int) -> int:
    return int64(load_u32(low, lane)) | int64(load_u32(high, lane)) << 32


@compiled
def put_wide(low: int, high: int, lane: int, value: int) -> None:
    store_u32(low, lane, uint32(value))
    store_u32(high, lane, uint32(value >> 32))


@compiled
def run_wide(context: int, wave: int, p: int) -> None:
    """64-bit results: moves, shifts, adds, and the two floats of an fp8 conversion."""
    op = load_i64(p, y.P_OP)
    lanes = get64(scalar_base(context, wave), EXEC)
    base = load_i64(p, y.P_DST)
    a = source_row(context, wave, p, 0, 0)
    low = vector_row(context, wave, y.VECTOR_ROWS + 5)
    high = vector_row(context, wave, y.VECTOR_ROWS + 6)
    if op == o.WIDE_MAD_U64 or op == o.WIDE_MAD_I64:
        multiply_add(context, wave, p, low, high)
    elif op == o.WIDE_CVT_FP8 or op == o.WIDE_CVT_SCALED:
        b = a
        if op == o.WIDE_CVT_SCALED:
            b = source_row(context, wave, p, 1, 0)
        aux = load_i64(p, y.P_AUX)  # bit 0: e5m2, bit 1: upper half of the source
        for i in range(64):
            word = int64(load_u32(a, i)) >> (8 * (aux & 2))
            for half in range(2):
                code = (word >> (8 * half)) & 0xFF
                value = f32_of_e5m2(code) if aux & 1 else f32_of_e4m3(code)
                if op == o.WIDE_CVT_SCALED:
                    value = scaled_by(value, int64(load_u32(b, i)), 1)
                store_u32(low if half == 0 else high, i, bits_of(float32(value)))
    elif op == o.WIDE_MOV:
        wide_source(context, wave, p, 0, low, high)
    elif op == o.WIDE_LSHL_ADD:
        wide_source(context, wave, p, 0, low, high)
        b = source_row(context, wave, p, 1, 0)
        c_low = vector_row(context, wave, y.VECTOR_ROWS + 3)
        c_high = vector_row(context, wave, y.VECTOR_ROWS + 4)
        wide_source(context, wave, p, 2, c_low, c_high)
        for i in range(64):
            shift = int64(load_u32(b, i)) & 7
            put_wide(low, high, i, (wide_at(low, high, i) << shift) + wide_at(c_low, c_high, i))
    else:  # shifts
        wide_source(context, wave, p, 1, low, high)
        for i in range(64):
            shift = int64(load_u32(a, i)) & 63
            x = wide_at(low, high, i)
            if op == o.WIDE_LSHLREV:
                x = x << shift
            elif op == o.WIDE_ASHRREV:
                x = x >> shift
            else:
                x = int64(uint64(x) >> uint64(shift))
            put_wide(low, high, i, x)
    commit(vector_row(context, wave, base), low, lanes)
    commit(vector_row(context, wave, base + 1), high, lanes)


@compiled
def multiply_add(context: int, wave: int, p: int, low: int, high: int) -> None:
    """v_mad_u64_u32, v_mad_i64_i32: rows low, high = a * b + c; bit 64 of the sums to a mask."""
    signed = load_i64(p, y.P_OP) == o.WIDE_MAD_I64
    flip = -0x8000000000000000
    scalars = scalar_base(context, wave)
    a = source_row(context, wave, p, 0, 0)
    b = source_row(context, wave, p, 1, 0)
    wide_source(context, wave, p, 2, low, high)
    out = 0
    for i in range(64):
        z = wide_at(low, high, i)
        x = int64(load_u32(a, i))
        y_value = int64(load_u32(b, i))
        if signed:
            product = signed32(x) * signed32(y_value)
            value = product + z
            # Equal signs keep theirs in bit 64; the sum of different ones cannot overflow.
            carry = product < 0 if (product < 0) == (z < 0) else value < 0
        else:
            value = int64(uint64(x) * uint64(y_value)) + z
            carry = (value ^ flip) < (z ^ flip)
        if carry:
            out |= 1 << i
        put_wide(low, high, i, value)
    put64(scalars, load_i64(p, y.P_SDST), out & get64(scalars, EXEC))


@compiled
def run_compare(context: int, wave: int, p: int) -> None:
    """Vector compares: the mask of active lanes goes to an SGPR pair (and to EXEC for cmpx)."""
    op = load_i64(p, y.P_OP)
    scalars = scalar_base(context, wave)
    lanes = get64(scalars, EXEC)
    a_high = vector_row(context, wave, y.VECTOR_ROWS + 5)
    b_high = vector_row(context, wave, y.VECTOR_ROWS + 6)
    if op >> 4 == o.CMP_I64 or op >> 4 == o.CMP_U64:
        a = source_row(context, wave, p, 0, 1)
        row_mov(a_high, a, a, a, 0, 0)
        b = source_row(context, wave, p, 1, 1)
        row_mov(b_high, b, b, b, 0, 0)
    a = source_row(context, wave, p, 0, 0)
    b = source_row(context, wave, p, 1, 0)
    mod = load_i64(p, y.P_MOD)
    if mod & 63:
        a = signed_row(context, wave, a, 0, mod & 1, (mod >> 3) & 1)
        b = signed_row(context, wave, b, 1, (mod >> 1) & 1, (mod >> 4) & 1)
    sdwa = load_i64(p, y.P_AUX + 1)
    if sdwa:
        a = select_part(a, vector_row(context, wave, y.VECTOR_ROWS + 5), sdwa)
        b = select_part(b, vector_row(context, wave, y.VECTOR_ROWS + 6), sdwa >> 4)
    mask = compare(op, a, b, a_high, b_high, load_i64(context, y.C_FLUSH)) & lanes
    put64(scalars, load_i64(p, y.P_SDST), mask)
    if load_i64(p, y.P_FLAGS):
        put64(scalars, EXEC, mask)


@compiled
def run_carry(context: int, wave: int, p: int) -> None:
    op = load_i64(p, y.P_OP)
    scalars = scalar_base(context, wave)
    lanes = get64(scalars, EXEC)
    a = source_row(context, wave, p, 0, 0)
    b = source_row(context, wave, p, 1, 0)
    t = vector_row(context, wave, y.VECTOR_ROWS + 3)
    carry = get64(scalars, load_i64(p, y.P_AUX)) if op & o.CARRY_IN else 0
    out = add_carry(op, t, a, b, carry)
    commit(vector_row(context, wave, load_i64(p, y.P_DST)), t, lanes)
    put64(scalars, load_i64(p, y.P_SDST), out & lanes)


@compiled
def run_lane(context: int, wave: int, row: int, p: int) -> None:
    """Lane reads and writes, register swaps, permlane swaps."""
    op = load_i64(p, y.P_OP)
    scalars = scalar_base(context, wave)
    lanes = get64(scalars, EXEC)
    a = source_row(context, wave, p, 0, 0)
    if op == o.L_READFIRST:
        lane = 0
        while lane < 63 and not (lanes >> lane) & 1:
            lane += 1
        if lanes == 0:
            lane = 0
        check_lane(context, wave, row, load_i64(p, y.P_KIND + 1), lane)
        put32(scalars, load_i64(p, y.P_DST), int64(load_u32(a, lane)))
        return
    if op == o.L_READ or op == o.L_WRITE:
        kind = load_i64(p, y.P_KIND + 2)
        value = load_i64(p, y.P_KIND + 3)
        lane = (get32(scalars, value) if kind == y.S_SCALAR else value) & 63
        if op == o.L_READ:
            check_lane(context, wave, row, load_i64(p, y.P_KIND + 1), lane)
            put32(scalars, load_i64(p, y.P_DST), int64(load_u32(a, lane)))
        else:
            define_lane(context, wave, load_i64(p, y.P_DST), lane)
            store_u32(vector_row(context, wave, load_i64(p, y.P_DST)), lane, load_u32(a, lane))
        return
    d = vector_row(context, wave, load_i64(p, y.P_DST))
    for lane in range(64):
        if op == o.L_SWAP:
            if (lanes >> lane) & 1:
                x = load_u32(d, lane)
                store_u32(d, lane, load_u32(a, lane))
                store_u32(a, lane, x)
        else:
            # vdst's odd halves (rows) change places with vsrc's even ones.
            width = 32 if op == o.L_PERMLANE32 else 16
            if lane & width == 0:
                if (lanes >> lane) & 1 != (lanes >> (lane + width)) & 1:
                    on = (lanes >> lane) & 1
                    taker = lane if on else lane + width
                    tell_off_lane(context, wave, row, taker, taker ^ width)
                x = load_u32(d, lane + width)
                if (lanes >> (lane + width)) & 1:
                    store_u32(d, lane + width, load_u32(a, lane))
                if (lanes >> lane) & 1:
                    store_u32(a, lane, x)


@compiled
def run_matrix(context: int, wave: int, p: int) -> None:
    a = vector_row(context, wave, load_i64(p, y.P_KIND + 1))
    b = vector_row(context, wave, load_i64(p, y.P_KIND + 3))
    c = source_row(context, wave, p, 2, 0)
    step = 256 if load_i64(p, y.P_KIND + 4) == y.S_VECTOR else 0
    d = vector_row(context, wave, load_i64(p, y.P_DST))
    multiply(p, wave, load_i64(context, y.C_TEMP), d, a, b, c, step)


@compiled
def run_scalar(context: int, wave: int, p: int) -> None:
    scalars = scalar_base(context, wave)
    a = load_i64(p, y.P_KIND + 1)
    if load_i64(p, y.P_KIND) == y.S_SCALAR:
        wide = load_i64(p, y.P_FLAGS) & 1
        a = get64(scalars, a) if wide else get32(scalars, a)
    b = load_i64(p, y.P_KIND + 3)
    if load_i64(p, y.P_KIND + 2) == y.S_SCALAR:
        wide = load_i64(p, y.P_FLAGS) & 2
        b = get64(scalars, b) if wide else get32(scalars, b)
    scalar_alu(load_i64(p, y.P_OP), scalars, load_i64(p, y.P_DST), a, b, load_i64(p, y.P_IMM))


@compiled
def branch_taken(context: int, wave: int, op: int) -> bool:
    scalars = scalar_base(context, wave)
    if op == o.BR_ALWAYS:
        return True
    if op == o.BR_SCC0:
        return get32(scalars, SCC) == 0
    if op == o.BR_SCC1:
        return get32(scalars, SCC) != 0
    if op == o.BR_VCCZ:
        return get64(scalars, VCC) == 0
    if op == o.BR_VCCNZ:
        return get64(scalars, VCC) != 0
    if op == o.BR_EXECZ:
        return get64(scalars, EXEC) == 0
    return get64(scalars, EXEC) != 0
