"""Changes of PTX text for the fuzzer: operands, modifiers, statements, declarations, bytes."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable
from pathlib import Path

EXTREMES = (
    "0", "1", "-1", "2", "7", "8", "15", "16", "17", "31", "32", "33", "63", "64", "255", "256",
    "1023", "1024", "1025", "4095", "4096", "65535", "65536", "1048575", "1048576", "16777215",
    "16777216", "2147483647", "2147483648", "-2147483648", "4294967295", "4294967296",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615",
    "18446744073709551616", "99999999999999999999", "0x7F0000000000", "0x7F0000000400",
    "0x7F0001000000", "0x7F0000ffffff", "0x7E0000000000", "0x7DFFFFFFFFFF", "0x7D0000000000",
    "0x7C0000000000", "0x7BFFFFFFFFFF", "0x700000000000", "0f7F800000", "0f7FC00000", "0f80000000",
    "0d7FF0000000000000", "0d0000000000000001", "1.5", "_", "WARP_SZ", "sh", "bar", "sh+16380",
    "sh+99999999999999999999", "sh+4294967295", "sh-1024", "m2", "p", "lo", "ct", "gl",
)  # fmt: skip
REGISTERS = ("p", "h", "r", "f", "rd", "d", "q")
SPECIALS = (
    "%tid.x", "%laneid", "%clock64", "%clock", "%globaltimer", "%gridid", "%lanemask_lt", "%smid",
    "%cluster_ctarank", "%envreg3", "%pm0", "%nope", "%warpid", "%is_explicit_cluster", "%tid",
)  # fmt: skip
TYPES = ("pred", "b8", "b16", "b32", "b64", "b128", "f16", "f32", "f64", "u8", "s64", "v4 .b32")
_OPERAND = re.compile(r"%[\w$]+(?:\.[xyzw]\b)?|(?<![\w.%$:])-?(?:0[xfd][0-9A-Fa-f]+|\d+)\b")
_REGISTER = re.compile(r"%[\w$]+")
_MODIFIER = re.compile(r"\.([a-zA-Z]\w*(?:::\w+)*)")
_VECTOR = re.compile(r"\{([^{}]*)\}")
_OPCODE = re.compile(r"(@!?%\w+\s+)?([a-z]\w*(?:\.\w+(?:::\w+)*)*)")


@functools.lru_cache(maxsize=1)
def pieces() -> tuple[str, ...]:
    """Instructions with every opcode that the emulator's tests have, and others."""
    text = Path(__file__).with_name("ptx_pieces.txt").read_text()
    return tuple(line.removesuffix(";") for line in text.splitlines())


@functools.lru_cache(maxsize=1)
def modifiers() -> tuple[str, ...]:
    return tuple(sorted({name for piece in pieces() for name in _MODIFIER.findall(piece)}))


def register(source: random.Random) -> str:
    """Any register of the frame."""
    return f"%{source.choice(REGISTERS)}{source.choice((0, 1, 2, 3, 4, 5, 6, 7, 10, 42, 63))}"


def operand(source: random.Random) -> str:
    """Anything that may stand for an operand."""
    kind = source.random()
    if kind < 0.5:
        return source.choice(EXTREMES)
    if kind < 0.85:
        return register(source)
    if kind < 0.95:
        return source.choice(SPECIALS)
    return "{" + ", ".join(register(source) for _ in range(source.choice((1, 2, 3, 4, 8)))) + "}"


def _other_operand(line: str, source: random.Random) -> str:
    found = list(_OPERAND.finditer(line))
    if not found:
        return line
    at = source.choice(found)
    new = operand(source)
    if at[0].startswith("%") and source.random() < 0.4:  # of the same kind mostly
        new = re.sub(r"\d+", str(source.randrange(64)), at[0])
    return line[: at.start()] + new + line[at.end() :]


def _swapped(line: str, source: random.Random) -> str:
    found = list(_OPERAND.finditer(line))
    if len(found) < 2:
        return line
    a, b = sorted(source.sample(found, 2), key=lambda match: match.start())
    return line[: a.start()] + b[0] + line[a.end() : b.start()] + a[0] + line[b.end() :]


def _other_modifier(line: str, source: random.Random) -> str:
    opcode = _OPCODE.match(line)
    found = [m for m in _MODIFIER.finditer(line) if opcode and m.end() <= opcode.end()]
    if not found:
        return line
    at = source.choice(found)
    new = source.choice((f".{source.choice(modifiers())}", "", at[0] * 2))
    return line[: at.start()] + new + line[at.end() :]


def _other_vector(line: str, source: random.Random) -> str:
    found = list(_VECTOR.finditer(line))
    if not found:
        return line
    at = source.choice(found)
    items = [item.strip() for item in at[1].split(",")]
    kind = source.randrange(4)
    if kind == 0:
        items.pop(source.randrange(len(items)))
    elif kind == 1:
        items.insert(source.randrange(len(items) + 1), operand(source))
    elif kind == 2:
        items[source.randrange(len(items))] = operand(source)
    else:
        items *= 2
    return line[: at.start()] + "{" + ", ".join(items) + "}" + line[at.end() :]


def _operands(line: str, source: random.Random) -> str:
    """One operand more or less."""
    head, _, tail = line.partition(" ")
    items = tail.split(",")
    if source.random() < 0.5 and len(items) > 1:
        items.pop(source.randrange(len(items)))
    else:
        items.insert(source.randrange(len(items) + 1), " " + operand(source))
    return f"{head} {','.join(items)}"


def _guard(line: str, source: random.Random) -> str:
    return f"@{source.choice(('', '!'))}{register(source)} {line}"


def _bytes(line: str, source: random.Random) -> str:
    place = source.randrange(len(line) + 1)
    added = chr(source.choice((0, 9, 32, 34, 36, 40, 46, 59, 64, 91, 123, 255, 0x1F600)))
    return line[:place] + source.choice((added, "", added * 3)) + line[place + 1 :]


_CHANGES: tuple[Callable[[str, random.Random], str], ...] = (
    *4 * (_other_operand,), _swapped, _other_modifier, _other_modifier, _other_vector,
    _other_vector, _operands, _guard, _bytes,
)  # fmt: skip


def changed(line: str, source: random.Random) -> str:
    """A statement with one thing changed."""
    return source.choice(_CHANGES)(line, source)


def branch(labels: int, source: random.Random) -> str:
    """A branch, perhaps for some lanes, to one of the labels L0, L1, ..."""
    target = f"L{source.randrange(labels)}"
    guard = source.choice(("", "", f"@%p{source.randrange(4)} ", f"@!%p{source.randrange(4)} "))
    return f"{guard}bra{source.choice(('', '.uni'))} {target}"


def wgmma(source: random.Random) -> str:
    """A wgmma of any shape and types."""
    kind = source.choice(("bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8"))
    depth = {"bf16": 16, "f16": 16, "tf32": 8}.get(kind, 32)
    sums = "s32" if kind in ("s8", "u8") else source.choice(("f32", "f32", "f16"))
    n = source.choice((8, 16, 64, 128, 7, 256, 264))
    first = source.choice(("f", "r", "r", "f", "rd"))
    count = n // (4 if sums == "f16" else 2) + source.choice((0, 0, 0, 0, 0, -1, 1))
    into = ", ".join(f"%{first}{i % 64}" for i in range(count))
    a = source.choice(("%rd8", "%rd9", "{%r1, %r2, %r3, %r4}", register(source)))
    trans = ", 0, 0" * (kind in ("bf16", "f16")) if "{" not in a else ", 1"
    scale = source.choice(("%p1", "1", "0", register(source)))
    return (
        f"wgmma.mma_async.sync.aligned.m64n{n}k{depth}.{sums}.{kind}.{kind} "
        f"{{{into}}}, {a}, %rd{source.choice((8, 9, 10))}, {scale}, 1, 1{trans}"
    )


def mma(source: random.Random) -> str:
    """A mma.sync of any shape and types."""
    kind = source.choice(("bf16", "f16", "tf32", "e4m3", "s8", "f64"))
    depth = source.choice((4, 8, 16, 32, 64, 999))
    sums = {"s8": "s32", "f64": "f64"}.get(kind, source.choice(("f32", "f16")))
    r = "d" if kind == "f64" else "r"
    d, a, b = source.choice(((4, 4, 2), (2, 4, 2), (4, 2, 1), (1, 4, 2), (4, 8, 4), (2, 1, 1)))
    first, *rest = (
        "{" + ", ".join(f"%{r}{(at * 8 + i) % 64}" for i in range(count)) + "}"
        for at, count in enumerate((d, a, b, d))
    )
    return (
        f"mma.sync.aligned.m16n8k{depth}.row.col.{sums}.{kind}.{kind}.{sums} "
        f"{first}, {', '.join(rest)}"
    )


_CELLS = ("%r40", "%r42", "%r42", "%r40+1", "%r42+256", "%r42+0x100000", "%r40+448", "0", "511")


def _cell(source: random.Random) -> str:
    """An address in tensor memory, mostly."""
    return f"[{source.choice((*_CELLS, register(source), source.choice(EXTREMES[:36])))}]"


def _moved(source: random.Random) -> str:
    shape, each = source.choice(
        (("32x32b", 1), ("16x64b", 1), ("16x128b", 2), ("16x256b", 4), ("16x32bx2", 1))
    )
    times = 1 << source.randrange(8)
    count = each * times + source.choice((0, 0, 0, 0, 0, 0, -1, 1))
    registers = "{" + ", ".join(f"%r{i % 39}" for i in range(count)) + "}"
    apart = f", {source.choice((0, 1, 8, 256, 511, 512))}" * (shape == "16x32bx2")
    head = f"sync.aligned.{shape}.x{times}"
    if source.random() < 0.5:
        half = source.choice(("", "", ".pack::16b"))
        return f"tcgen05.ld.{head}{half}.b32 {registers}, {_cell(source)}{apart}"
    half = source.choice(("", "", ".unpack::16b"))
    return f"tcgen05.st.{head}{half}.b32 {_cell(source)}{apart}, {registers}"


def _descriptor(source: random.Random) -> tuple[str, str]:
    """A matrix descriptor into a register, and the register."""
    name = f"%rd{source.randrange(50, 60)}"
    value = source.choice((64, source.randrange(1 << 14))) | 1 << 46
    value |= source.choice((8, 1, 64, source.randrange(1 << 14))) << 16
    value |= source.choice((16, 64, 32, source.randrange(1 << 14))) << 32
    value |= source.choice((0, 2, 4, 6, source.randrange(8))) << 61
    return f"mov.b64 {name}, {hex(value)}", name


def _tensor_product(group: str, source: random.Random) -> str:
    kind, formats = source.choice(
        (("f16", (0, 1)), ("tf32", (2,)), ("f8f6f4", (0, 1, 3, 4, 5)), ("i8", (0, 1)))
    )
    a, b = source.choice(formats), source.choice(formats)
    rows, columns = source.choice((2, 4, 8, 8, 16, 5)), source.choice((1, 2, 4, 8, 16, 32, 63))
    word = source.choice((1, 1, 0, 2)) << 4 | (a if kind != "f16" else b) << 7 | b << 10
    word |= source.choice((0, 0, 0, 1, 2, 3)) << 15 | columns << 17 | rows << 24
    word |= source.choice((0, 0, 0, 1, 4, 8, 1 << 13, 1 << 30))
    first, left = _descriptor(source)
    second, right = _descriptor(source)
    left = _cell(source) if source.random() < 0.3 else left
    ws = source.choice(("", "", ".ws"))
    masks = ""
    if source.random() < 0.2:
        count = source.choice((4, 8))
        masks = ", {" + ", ".join(f"%r{i}" for i in range(count)) + "}"
    scale = source.choice(("", "", "", ", 3"))
    return (
        f"{first}; {second}; @%p1 tcgen05.mma{ws}.{group}.kind::{kind} {_cell(source)}, {left}, "
        f"{right}, {word}{masks}, {source.choice(('1', '0', '%p1'))}{scale}"
    )


def tensor(group: str, source: random.Random) -> str:
    """A tcgen05 of any kind."""
    kind = source.random()
    if kind < 0.3:
        return _moved(source)
    if kind < 0.6:
        return _tensor_product(group, source)
    if kind < 0.75:
        made, name = _descriptor(source)
        shape = source.choice(
            ("128x256b", "128x128b", "64x128b.warpx2::02_13", "64x128b.warpx2::01_23",
             "32x128b.warpx4", "4x256b")
        )  # fmt: skip
        return f"{made}; @%p1 tcgen05.cp.{group}.{shape} {_cell(source)}, {name}"
    done = f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster"
    columns = source.choice((32, 64, 512, 31, 1024, "%r5"))
    return source.choice((
        f"@%p1 {done}.b64 [%r2]",
        f"@%p1 {done}.multicast::cluster.b64 [%r2], %h1",
        f"{done}.multicast::cluster.b64 [%r2], {register(source)}",
        f"{done}.b64 [{register(source)}]",
        "tcgen05.wait::ld.sync.aligned", "tcgen05.wait::st.sync.aligned",
        "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync",
        f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned",
        f"tcgen05.dealloc.{group}.sync.aligned.b32 %r40, {columns}",
        f"tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [%r41], {columns}",
    ))  # fmt: skip


def statement(labels: int, source: random.Random) -> str:
    """One more statement: a piece as it is or changed, a matrix instruction, a branch."""
    kind = source.random()
    if kind < 0.06:
        return branch(labels, source)
    if kind < 0.10:
        return wgmma(source)
    if kind < 0.13:
        return mma(source)
    line = source.choice(pieces())
    return changed(line, source) if source.random() < 0.5 else line


def rearranged(text: str, times: int, source: random.Random) -> str:
    """A whole text with statements changed, left out, repeated, moved and added."""
    parts = text.split(";")
    for _ in range(times):
        at = source.randrange(len(parts))
        kind = source.random()
        if kind < 0.55:
            head, brace, tail = parts[at].rpartition("\n")
            parts[at] = head + brace + changed(tail, source)
        elif kind < 0.65:
            parts.pop(at)
        elif kind < 0.72:
            parts.insert(source.randrange(len(parts)), parts[at])
        elif kind < 0.80:
            parts.insert(source.randrange(len(parts)), parts.pop(at))
        elif kind < 0.92:
            parts.insert(at, "\n" + statement(4, source))
        else:
            return _declaration(";".join(parts), source)
        if not parts:
            break
    return ";".join(parts)


_DECLARED = re.compile(
    r"(?<=\.reg \.)\w+|(?<=<)\d+(?=>)|(?<=\[)\d+(?=\])|(?<=\.align )\d+"
    r"|(?<=\.reqntid )\d+|(?<=\.maxntid )\d+|(?<=\.reqnctapercluster )\d+|(?<=\.param \.)\w+"
)


def _declaration(text: str, source: random.Random) -> str:
    """A type or a number of a declaration changed."""
    found = list(_DECLARED.finditer(text))
    if not found:
        return text
    at = source.choice(found)
    new = source.choice(EXTREMES[:34]) if at[0].isdigit() else source.choice(TYPES)
    return text[: at.start()] + new + text[at.end() :]


def noisy(text: str, source: random.Random) -> str:
    """A text with stretches of noise, cut off, or noise alone."""
    kind = source.random()
    if kind < 0.1:
        return "".join(chr(source.choice((source.randrange(128), 0x2028))) for _ in range(200))
    if kind < 0.3:
        return text[: source.randrange(len(text))]
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(text))
        new = source.choice(
            ("", "{", "}", "(", ";", ":", "/*", '"', ".", "@", "\n", "%r1", "<", "0")
        )
        text = text[:at] + new + text[at + source.choice((0, 1, 1, 5, 60)) :]
    return text
