"""tcgen05: what the text alone tells of the defects that ptxas's guard rails trap at run time.

Paths of a kernel with tcgen05 are not followed: nothing here knows what a commit completes. What
needs values of a run (whose lanes a warp names, whether columns are allocated at that time) the
emulator sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mlagen.audit.ptx.report import Finding, Notes
from mlagen.ptx import Entry, Graph, Instruction
from mlagen.ptx.syntax import MemoryOperand, Operand, Vector
from mlagen.targets.sm_100a.limits import SM_100A

COLUMNS, LANES, LEAST = SM_100A.tmem_columns, SM_100A.tmem_lanes, SM_100A.tmem_alloc_min
_GROUPS = ("cta_group::1", "cta_group::2")
_SCALED = ("kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4")
_SPARSE = 1 << 2  # of an instruction descriptor
Tell = Callable[..., None]


def check(entry: Entry, graph: Graph, notes: Notes) -> tuple[str, ...]:
    """Tells `notes` what breaks a rule, and what the text does not tell. What was looked at: ()
    where the entry has no tcgen05."""
    found = [(n, i) for n, i in enumerate(entry.instructions) if i.name == "tcgen05"]
    if not found:
        return ()
    known = _known(graph)

    def tell(
        rule: str, at: Instruction, message: str, needs: str = "", other: object = None
    ) -> None:
        pair = other if isinstance(other, Instruction) else None
        notes.add(Finding.at(rule, entry.name, at, message, needs=needs, other=pair))

    _groups([i for _, i in found], tell)
    room = _allocations(found, graph, known, tell)
    columns = [i for _, i in found if i.parts[1] in ("alloc", "dealloc")]
    moves = [i for _, i in found if i.parts[1] in ("ld", "st")]
    products = [i for _, i in found if i.parts[1] == "mma"]
    for instruction in moves:
        _move(instruction, room, tell)
    for instruction in products:
        _product(instruction, known, tell)
    told = _looked_at(
        notes,
        ("columns of {} tcgen05.alloc and .dealloc", columns,
         [i for i in columns if known(i.operands[1]) is not None]),
        ("lanes and columns of {} tcgen05.ld and .st from their bases on", moves,
         [i for i in moves if _place(i) is not None]),
        ("instruction descriptors of {} tcgen05.mma", products,
         [i for i in products if _descriptor(i, known) is not None]),
    )  # fmt: skip
    return (f".cta_group of {len(found)} tcgen05 instructions", *told)


def _looked_at(
    notes: Notes, *told: tuple[str, list[Instruction], list[Instruction]]
) -> tuple[str, ...]:
    """What was looked at: in words with the number left out, all of it, and what the text tells."""
    for what, there, known in told:
        if missing := [i for i in there if i not in known]:
            many = what.format(f"{len(missing)} of {len(there)}")
            notes.gap(f"{many}: the text does not tell them (line {missing[0].line})")
    return tuple(what.format(len(known)) for what, _, known in told if known)


def _known(graph: Graph) -> Callable[[Operand], int | None]:
    """What an operand is, where it is a number or a register that is only ever set to one."""
    values: dict[str, int | None] = {}
    for instruction, names in zip(graph.instructions, graph.writes, strict=True):
        for name in names:
            plain = instruction.name == "mov" and not instruction.guard and name not in values
            value = instruction.operands[1] if plain else None
            values[name] = value if isinstance(value, int) else None
    return lambda x: x if isinstance(x, int) else values.get(x) if isinstance(x, str) else None


def _groups(found: list[Instruction], tell: Tell) -> None:
    """One .cta_group in a kernel."""
    first: Instruction | None = None
    for instruction in found:
        group = next((part for part in instruction.parts if part in _GROUPS), "")
        if group and first is None:
            first = instruction
        elif group and first and group not in first.parts:
            tell("tcgen05-group", instruction, f".{group} in a kernel that begins with another",
                 "the same .cta_group in all of a kernel's tcgen05", first)  # fmt: skip
            return


def _allocations(
    found: list[tuple[int, Instruction]], graph: Graph, known: Callable[[Operand], int | None],
    tell: Tell,
) -> int:  # fmt: skip
    """Columns, permit and the end of allocations. Columns that the kernel can have at most."""
    allocs = [(n, i) for n, i in found if i.parts[1] == "alloc"]
    frees = [i for _, i in found if i.parts[1] == "dealloc"]
    for instruction in [i for _, i in allocs] + frees:
        columns = known(instruction.operands[1])
        if columns is not None and not _good(columns):
            tell("tcgen05-columns", instruction, f"{columns} columns of tensor memory",
                 f"a power of two from {LEAST} to {COLUMNS}")  # fmt: skip
    for node, permit in found:
        if permit.parts[1] == "relinquish_alloc_permit":
            for later in (i for n, i in allocs if n in _behind(graph, node)):
                tell("tcgen05-permit", later, "an allocation behind the end of its permit",
                     "the allocation before tcgen05.relinquish_alloc_permit", permit)  # fmt: skip
    sizes = [known(i.operands[1]) for _, i in allocs]
    for _, instruction in allocs:
        if not frees:
            tell("tcgen05-freed", instruction, "these columns are never freed", "tcgen05.dealloc")
    if allocs and None not in sizes:
        for instruction in frees:
            columns = known(instruction.operands[1])
            if columns is not None and columns not in sizes:
                tell("tcgen05-freed", instruction, f"no allocation has {columns} columns",
                     "the number of columns that was allocated", allocs[0][1])  # fmt: skip
    again = any(n in _behind(graph, n) for n, _ in allocs)
    if not allocs or again:
        return COLUMNS
    return min(sum(COLUMNS if size is None else size for size in sizes), COLUMNS)


def _good(columns: int) -> bool:
    return LEAST <= columns <= COLUMNS and columns & (columns - 1) == 0


def _behind(graph: Graph, node: int) -> set[int]:
    """Nodes on paths from a node on."""
    seen: set[int] = set()
    work = list(graph.successors[node])
    while work:
        at = work.pop()
        if at not in seen and at != graph.end:
            seen.add(at)
            work.extend(graph.successors[at])
    return seen


def _move(instruction: Instruction, room: int, tell: Tell) -> None:
    """Lanes and columns of tcgen05.ld and .st, as far as the offset tells them."""
    where = _place(instruction)
    if where is None:
        return
    parts = instruction.parts
    lane, column = where.offset >> 16, where.offset & 0xFFFF
    width = _width(instruction)
    if lane >= LANES or column + width > room:
        tell("tcgen05-bounds", instruction,
             f"lane {lane}, columns {column} to {column + width - 1} from its base on",
             f"{LANES} lanes and the {room} columns that can be allocated")  # fmt: skip
    step = 32 if "32x32b" in parts else 16
    if lane % step:
        tell("tcgen05-lanes", instruction, f"it begins {lane} lanes from its base on",
             f"a multiple of {step}: a warp reaches 32 lanes, and this is their shape")  # fmt: skip


def _place(instruction: Instruction) -> MemoryOperand | None:
    """Where it loads or stores; None where the offset is no lane and column."""
    where = next((x for x in instruction.operands if isinstance(x, MemoryOperand)), None)
    return None if where is None or where.offset < 0 else where


def _width(instruction: Instruction) -> int:
    """Columns that a load or store accesses."""
    parts = instruction.parts
    held = next((x for x in instruction.operands if isinstance(x, Vector)), None)
    registers = len(held.items) if held else 1
    columns = registers * (1 if "32x32b" in parts or "16x32bx2" in parts else 2)
    if "pack::16b" in parts or "unpack::16b" in parts:
        columns *= 2
    apart = [x for x in instruction.operands if isinstance(x, int)]
    return columns + (apart[0] if "16x32bx2" in parts and apart else 0)


def _product(
    instruction: Instruction, known: Callable[[Operand], int | None], tell: Tell
) -> None:  # fmt: skip
    """The instruction descriptor against the modifiers, where it is known."""
    parts = instruction.parts
    sparse = "sp" in parts
    word = _descriptor(instruction, known)
    if word is None:
        return
    if bool(word & _SPARSE) != sparse:
        tell("tcgen05-sparse", instruction,
             f"bit 2 of the instruction descriptor is {int(bool(word & _SPARSE))}",
             f"{int(sparse)}, as .sp says")  # fmt: skip
    rows, columns = (word >> 24 & 31) * 16, (word >> 17 & 63) * 8
    if not any(part in _SCALED for part in parts) and not _fits(parts, rows, columns):
        tell("tcgen05-shape", instruction, f"M {rows} and N {columns} in its descriptor",
             "; ".join(_shapes(parts)))  # fmt: skip


def _descriptor(instruction: Instruction, known: Callable[[Operand], int | None]) -> int | None:
    at = 4 if "sp" in instruction.parts else 3
    return known(instruction.operands[at]) if len(instruction.operands) > at else None


def _shapes(parts: tuple[str, ...]) -> Iterator[str]:
    """What there is of M and N (PTX ISA, "Matrix shapes")."""
    if "ws" in parts:
        yield "M 32, 64 or 128 with N 64, 128 or 256"
    elif "cta_group::2" in parts:
        yield "M 128 or 256 with N a multiple of 32 up to 256"
    else:
        yield "M 64 with N a multiple of 8 up to 256"
        yield "M 128 with N a multiple of 16 up to 256"


def _fits(parts: tuple[str, ...], rows: int, columns: int) -> bool:
    if not 8 <= columns <= SM_100A.mma_columns_max:
        return False
    if "ws" in parts:
        return rows in (32, 64, 128) and columns in (64, 128, 256)
    if "cta_group::2" in parts:
        return rows in (128, 256) and columns % 32 == 0
    return rows == 64 or (rows == 128 and columns % 16 == 0)
