"""Issue of memory instructions: addresses, range checks, race bookkeeping, queue entries."""

from __future__ import annotations

from mlagen.binary.operand import EXEC, M0
from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.gfx950.conflicts import note_access
from mlagen.emulator.gfx950.exchange import refuse_partial, tell_off_lane
from mlagen.emulator.gfx950.queues import (
    after_issue,
    open_entry,
    poison_registers,
    read_bytes,
)
from mlagen.emulator.gfx950.races import (
    new_operation,
    note_read,
    note_write,
    quiet_read,
    quiet_span,
    quiet_write,
)
from mlagen.emulator.gfx950.scalar import get32, get64
from mlagen.emulator.gfx950.spans import fill_range, form_offsets
from mlagen.emulator.gfx950.state import (
    program_row,
    register_slot,
    report,
    scalar_base,
    vector_row,
)
from mlagen.emulator.gfx950.transposing import transposes
from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_i64, store_u32, uint32


@compiled
def find_buffer(context: int, address: int, size: int, access: int, hint: int) -> int:
    """Number of the buffer that holds all `size` bytes and allows `access`; -1 for none."""
    table = load_i64(context, y.C_BUFFERS)
    count = load_i64(context, y.C_BUFFER_COUNT)
    for step in range(count):
        i = hint + step
        if i >= count:
            i -= count
        base = i * y.B_SIZE
        offset = address - load_i64(table, base + y.B_BASE)
        # Written so that no address, however wild, can overflow into the range.
        if offset >= 0 and offset <= load_i64(table, base + y.B_BYTES) - size:
            if load_i64(table, base + y.B_ACCESS) & access:
                return i
            return -1
    return -1


@compiled
def place_of(context: int, buffer: int, address: int) -> int:
    """Arena offset of a simulated address inside a buffer."""
    table = load_i64(context, y.C_BUFFERS) + buffer * (8 * y.B_SIZE)
    return address - load_i64(table, y.B_BASE) + load_i64(table, y.B_ARENA)


@compiled
def unset_byte(context: int, buffer: int, address: int) -> int:
    """Byte of the argument segment at an address if nobody set its dword, else -1.

    The segment is the last buffer of the table.
    """
    if buffer != load_i64(context, y.C_BUFFER_COUNT) - 1 or not load_i64(context, y.C_SANITIZE):
        return -1
    byte = (address - load_i64(load_i64(context, y.C_BUFFERS), buffer * y.B_SIZE)) & ~3
    return byte if load_i64(load_i64(context, y.C_UNSET), byte >> 2) else -1


@compiled
def operand32(context: int, wave: int, kind: int, value: int) -> int:
    if kind == y.S_SCALAR:
        return get32(scalar_base(context, wave), value)
    return value & 0xFFFFFFFF


@compiled
def locate(
    context: int, wave: int, row: int, address: int, dwords: int, size: int, valid: int, access: int
) -> int:
    """Translate one lane's access: arena offset * 256 + mask of dwords that really are accessed.

    `valid`: dwords that passed the range check. Those outside every buffer are reported.
    """
    if valid == 0:
        return 0
    total = size if dwords == 1 else 4 * dwords
    hint = load_i64(context, y.C_HINT)
    if valid == (1 << dwords) - 1:
        buffer = find_buffer(context, address, total, access, hint)
        if buffer >= 0:
            store_i64(context, y.C_HINT, buffer)
            if buffer == load_i64(context, y.C_BUFFER_COUNT) - 1:
                for i in range(dwords):
                    byte = unset_byte(context, buffer, address + 4 * i)
                    if byte >= 0:
                        report(context, y.UNSET_ARGUMENT, row, -1, wave, -1, byte, 0)
            return (place_of(context, buffer, address) << 8) | valid
    mask = 0
    place = 0
    for i in range(dwords):
        if (valid >> i) & 1:
            part = min(size, 4)
            buffer = find_buffer(context, address + 4 * i, part, access, hint)
            if buffer >= 0:
                mask |= 1 << i
                place = place_of(context, buffer, address + 4 * i) - 4 * i
            else:
                report(context, y.GLOBAL_BOUNDS, row, -1, wave, address + 4 * i, part, access)
    return (place << 8) | mask


@compiled
def locate_whole(
    context: int,
    addresses: int,
    row: int,
    base: int,
    records: int,
    offset: int,
    size: int,
    access: int,
) -> bool:
    """Translate a whole wave's access (see `locate`) if all of it lies in one buffer.

    `row`: 32-bit offsets a lane; `offset` is added to them, and the sum is checked against
    `records` bytes from `base`. False: nothing was reported, look at each lane.
    """
    largest = (form_offsets(row, offset, addresses) >> 32) & 0xFFFFFFFF
    if largest + size > records:
        return False
    buffer = find_buffer(context, base, largest + size, access, load_i64(context, y.C_HINT))
    if buffer < 0 or buffer == load_i64(context, y.C_BUFFER_COUNT) - 1:
        return False
    store_i64(context, y.C_HINT, buffer)
    place = place_of(context, buffer, base)
    mask = (1 << (size // 4)) - 1
    for lane in range(64):
        store_i64(addresses, lane, (load_i64(addresses, lane) + place) << 8 | mask)
    return True


@spliced
def access_of(op: int) -> int:
    """The right that an access asks for: 1 to read, 2 to write."""
    return 2 if op == o.G_STORE or op == o.G_ATOMIC else 1


@spliced
def kind_of(op: int) -> int:
    if op == o.G_STORE:
        return y.K_STORE
    if op == o.G_LOAD_LDS:
        return y.K_DMA
    return y.K_ATOMIC if op == o.G_ATOMIC else y.K_LOAD


@spliced
def place_asked(context: int, wave: int, p: int) -> tuple[int, int, int, int]:
    """(base, records, stride, soffset) of a buffer's resource; of a global access the base alone.
    The base is -1 for a descriptor that is not modelled."""
    scalars = scalar_base(context, wave)
    if load_i64(p, y.P_FLAGS) & 1 == 0:
        scalar = load_i64(p, y.P_KIND + 2) == y.S_SCALAR
        return get64(scalars, load_i64(p, y.P_KIND + 3)) if scalar else 0, 0, 0, 0
    resource = load_i64(p, y.P_KIND + 3)
    word1 = get32(scalars, resource + 1)
    if word1 >> 31 or get32(scalars, resource + 3) & 0x800000:
        return -1, 0, 0, 0  # swizzled addressing, ADD_TID_ENABLE
    base = get32(scalars, resource) | (word1 & 0xFFFF) << 32
    soffset = operand32(context, wave, load_i64(p, y.P_KIND + 4), load_i64(p, y.P_KIND + 5))
    return base, get32(scalars, resource + 2), (word1 >> 16) & 0x3FFF, soffset


@compiled
def locate_lanes(
    context: int, wave: int, row: int, slot: int, base: int, records: int, stride: int, soffset: int
) -> None:
    """Translate the lanes' accesses one by one (see `locate`) into the addresses of an entry."""
    p = program_row(context, row)
    flags = load_i64(p, y.P_FLAGS)
    dwords = load_i64(p, y.P_AUX)
    size = load_i64(p, y.P_AUX + 1)
    offset = load_i64(p, y.P_IMM)
    access = access_of(load_i64(p, y.P_OP))
    has_address = load_i64(p, y.P_KIND) == y.S_VECTOR
    address_row = vector_row(context, wave, load_i64(p, y.P_KIND + 1)) if has_address else 0
    lanes = load_i64(load_i64(context, y.C_QUEUE), slot * y.E_SIZE + y.E_EXEC)
    addresses = load_i64(context, y.C_QADDR) + slot * 512
    for lane in range(64):
        word = 0
        if (lanes >> lane) & 1:
            valid = (1 << dwords) - 1
            if flags & 1:
                index = 0
                voffset = 0
                if flags & 4:
                    index = int64(load_u32(address_row, lane))
                    if flags & 2:
                        voffset = int64(load_u32(address_row, 64 + lane))
                elif flags & 2:
                    voffset = int64(load_u32(address_row, lane))
                inner = (voffset + offset) & 0xFFFFFFFF
                if flags & 4 and stride != 0:
                    if index >= records:
                        valid = 0
                else:
                    valid = 0
                    part = size if dwords == 1 else 4
                    for i in range(dwords):
                        if inner + soffset + 4 * i + part <= records:
                            valid |= 1 << i
                address = base + soffset + index * stride + inner
            elif flags & 8:  # 32-bit VGPR offset on an SGPR base
                address = base + int64(load_u32(address_row, lane)) + offset
            else:
                high = int64(load_u32(address_row, 64 + lane))
                address = (int64(load_u32(address_row, lane)) | high << 32) + offset
            word = locate(context, wave, row, address, dwords, size, valid, access)
        store_i64(addresses, lane, word)


@compiled
def issue_vector_memory(context: int, wave: int, row: int) -> bool:
    """buffer_* and global_*: loads, stores, atomics, loads to LDS. False: an unmodelled descriptor.

    Program columns: source 0 the address VGPR(s), 1 the resource or base SGPRs, 2 soffset;
    AUX 0: dwords, 1: bytes, 2: signed, 3: data register. FLAGS bit 0: buffer, 1: offen, 2: idxen.
    An atomic's operation is in SDST, the register that its old value goes to (-1: none) in DST.
    """
    p = program_row(context, row)
    op = load_i64(p, y.P_OP)
    dwords = load_i64(p, y.P_AUX)
    size = load_i64(p, y.P_AUX + 1)
    offset = load_i64(p, y.P_IMM)
    lanes = get64(scalar_base(context, wave), EXEC)
    base, records, stride, soffset = place_asked(context, wave, p)
    if base < 0:
        return False
    # Addresses are formed before the destination is poisoned: they may share registers.
    target = -1
    if op == o.G_LOAD:
        target = load_i64(p, y.P_AUX + 3)
    elif op == o.G_ATOMIC:
        target = load_i64(p, y.P_DST)
    slot = open_entry(context, wave, y.Q_VM, kind_of(op), row, target, dwords)
    entry = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
    store_i64(entry, y.E_EXEC, lanes)
    store_i64(entry, y.E_BYTES, size)
    store_i64(entry, y.E_VARIANT, load_i64(p, y.P_AUX + 2))
    addresses = load_i64(context, y.C_QADDR) + slot * 512
    whole = False
    if load_i64(p, y.P_FLAGS) & 7 == 3 and lanes == -1 and size == 4 * dwords and dwords != 3:
        address_row = vector_row(context, wave, load_i64(p, y.P_KIND + 1))
        start, room, access = base + soffset, records - soffset, access_of(op)
        whole = locate_whole(context, addresses, address_row, start, room, offset, size, access)
        store_i64(entry, y.E_WHOLE, 1 if whole else 0)
    if not whole:
        locate_lanes(context, wave, row, slot, base, records, stride, soffset)
    if op == o.G_ATOMIC:
        store_i64(entry, y.E_VARIANT, load_i64(p, y.P_SDST))
        refuse_misaligned(context, wave, row, addresses, lanes)
    if load_i64(context, y.C_ATOMIC) != 0:
        note_access(context, wave, row, slot)
    if (op == o.G_STORE or op == o.G_ATOMIC) and lanes != 0:
        note_landed(context, row, addresses, lanes, whole)
    if op == o.G_STORE or op == o.G_ATOMIC:
        data = load_i64(context, y.C_QDATA) + slot * (256 * y.QDATA_ROWS)
        for i in range(dwords):
            source = vector_row(context, wave, load_i64(p, y.P_AUX + 3) + i)
            for lane in range(64):
                store_u32(data, i * 64 + lane, load_u32(source, lane))
    if target >= 0:
        poison_registers(context, wave, target, dwords, lanes)
    if op == o.G_LOAD_LDS:
        issue_dma(context, wave, row, slot, dwords, offset, lanes)
    after_issue(context, wave, y.Q_VM)
    return True


@compiled
def note_landed(context: int, row: int, addresses: int, lanes: int, whole: bool) -> None:
    """Remember that a store, or an atomic, has reached memory, or that it was to."""
    landed = load_i64(context, y.C_LANDED)
    known = load_i64(landed, row)
    if known & y.LANDED:
        return
    known = y.ASKED | y.LANDED if whole else y.ASKED
    for lane in range(0 if whole else 64):
        if (lanes >> lane) & 1 and load_i64(addresses, lane) & 255:
            known = y.ASKED | y.LANDED
    store_i64(landed, row, known)


@compiled
def refuse_misaligned(context: int, wave: int, row: int, addresses: int, lanes: int) -> None:
    """Report the lanes of an atomic whose address is no multiple of 4, and drop their access.

    Buffers start at multiples of 4 on both sides, so arena offsets show it.
    """
    for lane in range(64):
        word = load_i64(addresses, lane)
        if (lanes >> lane) & 1 and word & 1 and (word >> 8) & 3 != 0:
            report(context, y.GLOBAL_ALIGNMENT, row, -1, wave, word >> 8, 4, 0)
            store_i64(addresses, lane, 0)


@compiled
def issue_dma(
    context: int, wave: int, row: int, slot: int, dwords: int, offset: int, lanes: int
) -> None:
    """The LDS side of a load to LDS: byte address M0 + instruction offset + lane * width."""
    place = get32(scalar_base(context, wave), M0) + offset
    limit = load_i64(context, y.C_LDS_BYTES)
    entry = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
    kept = lanes
    if place & 3:
        report(context, y.LDS_ALIGNMENT, row, -1, wave, place, 4, 0)
        place &= ~3
    whole = lanes == -1 and place >= 0 and place + 256 * dwords <= limit
    if not whole or dwords == 3:
        store_i64(entry, y.E_WHOLE, 0)
    for lane in range(0 if whole else 64):
        if (lanes >> lane) & 1:
            first = place + lane * 4 * dwords
            if first < 0 or first + 4 * dwords > limit:
                report(context, y.LDS_BOUNDS, row, -1, wave, first, 4 * dwords, limit)
                kept &= ~(1 << lane)
    store_i64(entry, y.E_EXEC, kept)
    store_i64(entry, y.E_VARIANT, place)
    if load_i64(context, y.C_SANITIZE):
        number = new_operation(context, wave, row, 1)
        store_i64(entry, y.E_OP, number)
        waves = load_i64(context, y.C_WAVES)
        if whole and quiet_span(context, number, place, 4 * dwords, waves):
            kept = 0
        for lane in range(64):
            if (kept >> lane) & 1:
                first = place + lane * 4 * dwords
                note_write(context, wave, row, number, 1, first, dwords, waves)
    lds = load_i64(context, y.C_LDS)
    if whole:
        fill_range(lds + place, 4 * dwords, y.POISON)
        return
    for lane in range(64):
        if (kept >> lane) & 1:
            for i in range(dwords):
                dword = (place >> 2) + lane * dwords + i
                store_u32(lds, dword, uint32(y.POISON))


@compiled
def check_lds_address(context: int, wave: int, row: int, byte: int, size: int, align: int) -> bool:
    """Report a DS access that is out of bounds or misaligned; False when out of bounds."""
    limit = load_i64(context, y.C_LDS_BYTES)
    if byte + size > limit:
        report(context, y.LDS_BOUNDS, row, -1, wave, byte, size, limit)
        return False
    if byte & (align - 1):
        report(context, y.LDS_ALIGNMENT, row, -1, wave, byte, align, 0)
    return True


@compiled
def issue_lds(context: int, wave: int, row: int) -> None:
    """DS instructions. Columns: AUX 0: dwords, 1: bytes, 2: alignment, 3: vdst; IMM: offset0,
    SDST: offset1 (both in bytes); sources: address, data0, data1."""
    p = program_row(context, row)
    op = load_i64(p, y.P_OP)
    if op >= o.D_BPERMUTE:
        issue_permute(context, wave, row)
        return
    dwords = load_i64(p, y.P_AUX)
    size = load_i64(p, y.P_AUX + 1)
    align = load_i64(p, y.P_AUX + 2)
    lanes = get64(scalar_base(context, wave), EXEC)
    if transposes(op):
        refuse_partial(context, wave, row, lanes)
    writes = op == o.D_WRITE or op == o.D_WRITE2
    two = op == o.D_READ2 or op == o.D_WRITE2
    target = -1 if writes else load_i64(p, y.P_AUX + 3)
    kind = y.K_LDS_WRITE if writes else y.K_LDS_READ
    slot = open_entry(context, wave, y.Q_LDS, kind, row, target, dwords)
    entry = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
    store_i64(entry, y.E_EXEC, lanes)
    store_i64(entry, y.E_BYTES, size)
    store_i64(entry, y.E_VARIANT, op)
    sanitize = load_i64(context, y.C_SANITIZE) != 0
    number = 0
    if sanitize:
        number = new_operation(context, wave, row, 0)
        store_i64(entry, y.E_OP, number)
    waves = load_i64(context, y.C_WAVES)
    addresses = load_i64(context, y.C_QADDR) + slot * 512
    source = vector_row(context, wave, load_i64(p, y.P_KIND + 1))
    part = size // 2 if two else size
    words = max(part // 4, 1)
    offset = load_i64(p, y.P_IMM)
    whole = lanes == -1 and not two and size >= 4
    if whole:
        span = form_offsets(source, offset, addresses)
        largest = (span >> 32) & 0xFFFFFFFF
        whole = largest + size <= load_i64(context, y.C_LDS_BYTES)
        whole = whole and span & (align - 1) == 0 and words != 3
        store_i64(entry, y.E_WHOLE, 1 if whole else 0)
    quiet = whole
    if whole and sanitize:
        if writes:
            quiet = quiet_write(context, number, addresses, words, waves)
        else:
            quiet = quiet_read(context, wave, number, addresses, words)
    for lane in range(0 if quiet else 64):
        word = 0
        if (lanes >> lane) & 1:
            for side in range(2 if two else 1):
                start = load_i64(p, y.P_SDST) if side else offset
                byte = (int64(load_u32(source, lane)) + start) & 0xFFFFFFFF
                word |= byte << (32 * side)
                fits = check_lds_address(context, wave, row, byte, part, align)
                if sanitize and fits:
                    if writes:
                        note_write(context, wave, row, number, 0, byte, words, waves)
                    else:
                        note_read(context, wave, row, number, byte, words)
        store_i64(addresses, lane, word)
    if writes:
        data = load_i64(context, y.C_QDATA) + slot * (256 * y.QDATA_ROWS)
        for i in range(dwords):
            register = load_i64(p, y.P_KIND + 3) + i
            if two and 2 * i >= dwords:
                register = load_i64(p, y.P_KIND + 5) + i - dwords // 2
            values = vector_row(context, wave, register)
            for lane in range(64):
                store_u32(data, i * 64 + lane, load_u32(values, lane))
    else:
        poison_registers(context, wave, target, dwords, lanes)
    after_issue(context, wave, y.Q_LDS)


@compiled
def issue_cache(context: int, wave: int, row: int) -> None:
    """Cache maintenance: an operation of its counter, and nothing else. Memory has no caches here.
    OP: the queue."""
    queue = load_i64(program_row(context, row), y.P_OP)
    open_entry(context, wave, queue, y.K_NOTHING, row, -1, 0)
    after_issue(context, wave, queue)


@compiled
def issue_permute(context: int, wave: int, row: int) -> None:
    """ds_bpermute, ds_permute and ds_swizzle: lanes exchange data through the LDS unit."""
    p = program_row(context, row)
    op = load_i64(p, y.P_OP)
    lanes = get64(scalar_base(context, wave), EXEC)
    target = load_i64(p, y.P_AUX + 3)
    slot = open_entry(context, wave, y.Q_LDS, y.K_LDS_PERMUTE, row, target, 1)
    entry = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
    store_i64(entry, y.E_EXEC, lanes)
    data = load_i64(context, y.C_QDATA) + slot * (256 * y.QDATA_ROWS)
    offset = load_i64(p, y.P_IMM)
    address = vector_row(context, wave, load_i64(p, y.P_KIND + 1))
    for lane in range(64):
        store_u32(data, lane, uint32(0))
    if op == o.D_SWIZZLE:
        for lane in range(64):
            if offset & 0x8000:
                source = (lane & ~3) | ((offset >> (2 * (lane & 3))) & 3)
            else:
                inside = ((lane & (offset & 31)) | ((offset >> 5) & 31)) ^ ((offset >> 10) & 31)
                source = (lane & ~31) | (inside & 31)
            if (lanes >> source) & 1:
                store_u32(data, lane, load_u32(address, source))
            elif (lanes >> lane) & 1:
                tell_off_lane(context, wave, row, lane, source)
    else:
        values = vector_row(context, wave, load_i64(p, y.P_KIND + 3))
        for lane in range(64):
            if (lanes >> lane) & 1:
                other = ((int64(load_u32(address, lane)) + offset) >> 2) & 63
                if op == o.D_PERMUTE:
                    store_u32(data, other, load_u32(values, lane))
                elif (lanes >> other) & 1:
                    store_u32(data, lane, load_u32(values, other))
                else:
                    tell_off_lane(context, wave, row, lane, other)
    poison_registers(context, wave, target, 1, lanes)
    after_issue(context, wave, y.Q_LDS)


@compiled
def issue_scalar_memory(context: int, wave: int, row: int) -> None:
    """s_load_*: base + soffset + offset, dword-aligned; the values are sampled at issue."""
    p = program_row(context, row)
    dwords = load_i64(p, y.P_AUX)
    target = load_i64(p, y.P_AUX + 3)
    scalars = scalar_base(context, wave)
    address = get64(scalars, load_i64(p, y.P_KIND + 1)) + load_i64(p, y.P_IMM)
    if load_i64(p, y.P_KIND + 2) == y.S_SCALAR:
        address += get32(scalars, load_i64(p, y.P_KIND + 3))
    address &= ~3
    slot = open_entry(context, wave, y.Q_SMEM, y.K_SMEM, row, target, dwords)
    data = load_i64(context, y.C_QDATA) + slot * (256 * y.QDATA_ROWS)
    defined = load_i64(context, y.C_DEFINED)
    for i in range(dwords):
        buffer = find_buffer(context, address + 4 * i, 4, 1, 0)
        value = 0
        if buffer >= 0:
            place = place_of(context, buffer, address + 4 * i)
            value = read_bytes(load_i64(context, y.C_ARENA) + place, 4)
            byte = unset_byte(context, buffer, address + 4 * i)
            if byte >= 0:  # wide loads take bytes along that nobody needs: using them is the defect
                store_i64(defined, register_slot(wave, target + i), 2 * (byte + 1))
        else:
            report(context, y.GLOBAL_BOUNDS, row, -1, wave, address + 4 * i, 4, 1)
        store_u32(data, i, uint32(value))
        store_u32(scalars, target + i - y.VECTOR_ROWS, uint32(y.POISON))
    after_issue(context, wave, y.Q_SMEM)
