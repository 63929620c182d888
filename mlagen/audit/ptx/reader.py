"""Reading PTX text: entries, their registers' scopes, labels and instructions.

This is a reader of its own: it takes any text that follows the PTX ISA's grammar, whoever wrote it.
Register names and labels that are declared inside `{ … }` are made unique (`%p@3`), as inline
assembly repeats them. Types are not checked; that is the assembler's work.

The text may be a stranger's: it is read in a time that grows with its length. Quantifiers that
could share a character are possessive, nesting and counts have limits.
"""

from __future__ import annotations

import math
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mlagen.audit.ptx.syntax import (
    Entry,
    Guard,
    Instruction,
    Memory,
    Module,
    Operand,
    Parameter,
    Shared,
    Vector,
)
from mlagen.errors import MissingError, UnsupportedError
from mlagen.targets.sm_90a.limits import SM_90A

THREADS = SM_90A.max_block_threads
_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}
_NAME = r"[A-Za-z_$%][\w$]*"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_HEADER = {name: re.compile(rf"^[ \t]*\.{name}[ \t]+([^\s,]+)", re.MULTILINE)
           for name in ("version", "target")}  # fmt: skip
_LABEL = re.compile(rf"({_NAME})\s*:(?!:)")
_LINE_DIRECTIVE = re.compile(r"\.(loc|file|version|target|address_size)\b[^\n]*")
_SECTION = re.compile(r"\.section\b[^{};]*\{")
_DECLARED = re.compile(rf"({_NAME})\s*(?:<(\d+)>)?")
_VARIABLE = re.compile(
    rf"\.shared\s+(?:\.align\s+(\d+)\s+)?(?:\.v(\d)\s+)?\.\w(\d+)\s+({_NAME})"
    rf"((?:\s*+\[\s*+\w*+\s*+\])*+)"
)
_PARAMETER = re.compile(
    rf"\.param\s+(?:\.align\s+\d+\s+)?\.\w(\d+)\s+(?:\.ptr\b[^,\[]{{0,80}}?\s)?({_NAME})\s*(?:\[\s*(\d+)\s*\])?"
)
_PERF = re.compile(r"\.(reqntid|maxntid|maxnreg)\s+([\d\s,]+)")
_FUNCTION = re.compile(r"(?:\.\w+\s+)*?\.(entry|func)\b")
_NUMBER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)[uU]?$")
_REAL = re.compile(
    r"[+-]?(0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|(?:\d*+\.)?\d++(?:[eE][+-]?\d++)?)$"
)
_OPCODE = re.compile(r"[a-z](?:[\w.]|::)*+$")
# Of a file; the largest known, MLA decode of several items a block, has a tenth of it.
_INSTRUCTIONS = 100_000
_ENTRIES = 1_000
_SHARED = 1_000  # variables
_DEPTH = 100  # of `{` in each other
_OPERAND_DEPTH = 4  # a matrix in an address is 2
_BITS = 64  # of a size
_ALIGN = 1 << 16  # bytes


@dataclass(slots=True)
class _Scope:
    """A `{ … }` of a body. Registers and labels of inner scopes get its number."""

    number: int
    parent: _Scope | None
    names: set[str] = field(default_factory=set)
    ranges: set[str] = field(default_factory=set)
    labels: dict[str, int] = field(default_factory=dict)

    def unique(self, name: str) -> str:
        """The name as the rest of the audit knows it."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names or name.rstrip("0123456789") in scope.ranges:
                return f"{name}@{scope.number}" if scope.parent else name
            scope = scope.parent
        return name

    def label(self, name: str) -> int | None:
        """The instruction index of a label that can be seen from here."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return None


def parse(text: str) -> Module:
    """Reads PTX text. Raises UnsupportedError with the line where the text is no PTX."""
    clean = _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    version, target = (_HEADER[name].search(clean) for name in ("version", "target"))
    if not version or not target:
        raise UnsupportedError(
            "this is no PTX text: it has no .version and .target",
            hint="the audit reads the text that ptxas reads, not a cubin",
        )
    globals_: list[Shared] = []
    entries: list[Entry] = []
    total = at = 0
    reader = _Reader(clean)
    while at < len(clean):
        match = re.compile(r"\S").search(clean, at)
        if not match:
            break
        at = match.start()
        if line := _LINE_DIRECTIVE.match(clean, at):
            at = line.end()
        elif section := _SECTION.match(clean, at):
            at = reader.close(section.end() - 1) + 1
        elif function := _FUNCTION.match(clean, at):
            first, count = reader.line(at), len(entries)
            with _located(first, clean[at : at + 60]):
                at = _function(reader, function, entries, globals_, _INSTRUCTIONS - total)
            total += sum(len(entry.instructions) for entry in entries[count:])
            _most(len(entries), _ENTRIES, first, "kernels")
        elif clean[at] in "{};":
            at += 1
        else:
            end = reader.statement_end(at)
            with _located(reader.line(at), clean[at:end]):
                globals_ += _shared(clean[at:end], reader.line(at))
            _most(len(globals_), _SHARED, reader.line(at), "shared variables")
            at = end + 1
    if not entries:
        raise MissingError("the PTX text holds no .entry")
    return Module(version.group(1), target.group(1), tuple(entries), tuple(text.splitlines()))


def _most(count: int, limit: int, line: int, what: str) -> None:
    if count > limit:
        raise UnsupportedError(f"line {line}: more than {limit} {what}; the audit takes no more")


class _Reader:
    """Positions in the text: lines, ends of statements, closing brackets."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def line(self, at: int) -> int:
        """1-based line of a position."""
        return bisect_right(self._starts, at)

    def statement_end(self, at: int) -> int:
        """Index of the `;` that ends the statement at `at`."""
        end = self.text.find(";", at)
        if end < 0:
            raise UnsupportedError(f"line {self.line(at)}: a statement without its ';'")
        return end

    def close(self, at: int) -> int:
        """Index of the bracket that closes the one at `at`."""
        pairs = {"{": "}", "(": ")"}
        opening, closing = self.text[at], pairs[self.text[at]]
        depth = 0
        for match in re.compile(rf"[{re.escape(opening + closing)}]").finditer(self.text, at):
            depth += 1 if match.group() == opening else -1
            if not depth:
                return match.start()
        raise UnsupportedError(f"line {self.line(at)}: '{opening}' is never closed")


@contextmanager
def _located(line: int, text: str) -> Iterator[None]:
    """What cannot be read becomes one error that names the line."""
    try:
        yield
    except (ValueError, KeyError, IndexError, OverflowError, struct.error) as error:
        shown = " ".join(text.split())[:60]
        raise UnsupportedError(f"line {line}: not understood: {shown}") from error
    except RecursionError as error:
        raise UnsupportedError(f"line {line}: nested too deeply") from error


def _shared(statement: str, line: int) -> list[Shared]:
    """The `.shared` variable that a statement declares, if it does."""
    match = _VARIABLE.search(statement)
    if not match:
        return []
    align, vector, bits, name, dims = match.groups()
    size = _SIZES[bits] * int(vector or 1)
    for extent in re.findall(r"\[\s*+(\w*+)", dims):
        size *= int(extent, 0) if extent else 0
        if size.bit_length() > _BITS:
            raise UnsupportedError(f"line {line}: {name[:60]} has 2^{_BITS} bytes and more")
    aligned = int(align or _SIZES[bits])
    if not 1 <= aligned <= _ALIGN:
        raise UnsupportedError(f"line {line}: .align {aligned}; it is 1 to {_ALIGN}")
    return [Shared(name, size, aligned, line)]


def _function(
    reader: _Reader,
    match: re.Match[str],
    entries: list[Entry],
    globals_: list[Shared],
    room: int,
) -> int:
    """Reads an entry; device functions and prototypes are passed over. Returns where it ends."""
    text, at = reader.text, match.end()
    semicolon = text.find(";", at)
    brace = text.find("{", at, semicolon if semicolon >= 0 else len(text))
    if brace < 0:
        return reader.statement_end(at) + 1  # a prototype
    end = reader.close(brace)
    if match.group(1) == "func":
        return end + 1
    name = re.compile(rf"\s*({_NAME})").match(text, at)
    if not name:
        raise UnsupportedError(f"line {reader.line(at)}: an .entry without a name")
    head = text[name.end() : brace]
    parameters = tuple(
        Parameter(
            m.group(2),
            _SIZES[m.group(1)] * int(m.group(3) or 1),
            reader.line(name.end() + m.start()),
        )
        for m in _PARAMETER.finditer(head)
    )
    numbers = {m.group(1): [int(n) for n in m.group(2).split(",")] for m in _PERF.finditer(head)}
    block = tuple(numbers.get("reqntid") or numbers.get("maxntid") or ())
    _block(block, reader.line(match.start()))
    body = _Body(reader, brace + 1, end, room)
    entries.append(
        Entry(
            name=name.group(1),
            line=reader.line(match.start()),
            parameters=parameters,
            instructions=body.finish(),
            shared=(*globals_, *body.shared),
            block=block,
            exact_threads="reqntid" in numbers,
            max_registers=numbers.get("maxnreg", [0])[0],
            calls=tuple(body.calls),
        )
    )
    return end + 1


def _block(block: tuple[int, ...], line: int) -> None:
    """Refuses a block that no launch has."""
    whole = len(block) <= 3 and all(1 <= extent <= THREADS for extent in block)
    if whole and math.prod(block) <= THREADS:
        return
    shown = " x ".join(map(str, block[:3])) + (" x …" if len(block) > 3 else "")
    raise UnsupportedError(
        f"line {line}: a block of {shown:.60} threads; it has 1 to {THREADS}, in up to 3 dimensions"
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """An instruction whose branch target is not known yet."""

    line: int
    span: tuple[int, int]
    text: str
    guard: Guard | None
    opcode: str
    operands: tuple[Operand, ...]
    scope: _Scope


class _Body:
    """The statements of one entry."""

    def __init__(self, reader: _Reader, start: int, end: int, room: int) -> None:
        self.reader, self._room = reader, room
        self.shared: list[Shared] = []
        self.calls: list[int] = []
        self._made: list[_Made] = []
        self._scope = _Scope(0, None)
        self._scopes = 1
        self._read(start, end)

    def _read(self, at: int, end: int) -> None:
        text = self.reader.text
        blank = re.compile(r"\s*")
        depth = 0
        while True:
            space = blank.match(text, at)
            at = space.end() if space else at
            if at >= end:
                return
            if text[at] == "{":
                self._scope = _Scope(self._scopes, self._scope)
                self._scopes += 1
                depth += 1
                if depth > _DEPTH:
                    raise RecursionError
                at += 1
            elif text[at] == "}":
                self._scope = self._scope.parent or self._scope
                depth -= 1
                at += 1
            elif text[at] == ";":
                at += 1
            elif line := _LINE_DIRECTIVE.match(text, at):
                at = line.end()
            elif label := _LABEL.match(text, at):
                self._scope.labels[label.group(1)] = len(self._made)
                at = label.end()
            else:
                stop = self.reader.statement_end(at)
                self._statement(text[at:stop], (at, stop + 1))
                at = stop + 1

    def _statement(self, statement: str, span: tuple[int, int]) -> None:
        line = self.reader.line(span[0])
        with _located(line, statement):
            self._read_statement(statement, span, line)

    def _read_statement(self, statement: str, span: tuple[int, int], line: int) -> None:
        if statement.startswith(".reg"):
            for name, count in _DECLARED.findall(re.sub(r"^\.reg(\s*\.\w+)+", "", statement)):
                (self._scope.ranges if count else self._scope.names).add(name)
            return
        if statement.startswith("."):
            self.shared += _shared(statement, line)
            _most(len(self.shared), _SHARED, line, "shared variables")
            return
        text = " ".join(statement.split())
        guard = None
        rest = text
        if match := re.match(rf"@\s*(!?)\s*({_NAME})\s*", text):
            guard = Guard(self._scope.unique(match.group(2)), bool(match.group(1)))
            rest = text[match.end() :]
        opcode, _, tail = rest.partition(" ")
        _most(len(self._made) + 1, self._room, line, "instructions")
        if not _OPCODE.match(opcode):
            raise UnsupportedError(f"line {line}: not an instruction: {text[:60]}")
        if opcode.split(".")[0] == "call":
            self.calls.append(line)
            tail = ""
        operands = tuple(self._operand(part, line) for part in _split(tail) if part)
        made = _Made(line, span, text + ";", guard, opcode, operands, self._scope)
        self._made.append(made)

    def _operand(self, text: str, line: int, depth: int = 0) -> Operand:
        text = text.strip()
        if depth > _OPERAND_DEPTH:
            raise RecursionError
        if text.startswith("{"):
            return Vector(tuple(self._operand(x, line, depth + 1) for x in _split(text[1:-1])))
        if text.startswith("["):
            inner = _split(text[1:-1])
            base, offset = self._address(inner[0].strip())
            more = tuple(self._operand(item, line, depth + 1) for item in inner[1:])
            flat = tuple(
                x for item in more for x in (item.items if isinstance(item, Vector) else (item,))
            )
            return Memory(base, offset, flat)
        if _NUMBER.match(text):
            return (
                int(text.rstrip("uU").lstrip("+"), 0)
                if not _octal(text)
                else int(text.rstrip("uU"), 8)
            )
        if _REAL.match(text):
            return _real(text)
        if "|" in text:
            return Vector(tuple(self._operand(item, line, depth + 1) for item in text.split("|")))
        negative = text.startswith("!")
        name = self._scope.unique(text.lstrip("!-").strip())
        return f"!{name}" if negative else name

    def _address(self, text: str) -> tuple[str, int]:
        match = re.match(rf"({_NAME}(?:\.\w+)?)?\s*(?:([+-])\s*(-?\w+))?$", text)
        if not match:
            return ("", int(text.rstrip("uU"), 0)) if _NUMBER.match(text) else (text, 0)
        name, sign, offset = match.groups()
        value = int((offset or "0").rstrip("uU"), 0)
        return self._scope.unique(name or ""), -value if sign == "-" else value

    def finish(self) -> tuple[Instruction, ...]:
        """All instructions, branches resolved."""
        return tuple(self._resolved(index, made) for index, made in enumerate(self._made))

    @staticmethod
    def _resolved(index: int, made: _Made) -> Instruction:
        parts, target = tuple(made.opcode.split(".")), -1
        if parts[0] == "bra" and made.operands and isinstance(made.operands[0], str):
            found = made.scope.label(made.operands[0].partition("@")[0])
            if found is None:
                raise UnsupportedError(f"line {made.line}: no label for {made.text}")
            target = found
        return Instruction(
            index, made.line, made.text, made.opcode, parts, made.operands, made.guard, target,
            made.span,
        )  # fmt: skip


def _octal(text: str) -> bool:
    return bool(re.match(r"[+-]?0[0-7]+[uU]?$", text))


def _real(text: str) -> float:
    if text[:2].lower() == "0f":
        return float(struct.unpack(">f", bytes.fromhex(text[2:]))[0])
    if text[:2].lower() == "0d":
        return float(struct.unpack(">d", bytes.fromhex(text[2:]))[0])
    return float(text)


def _split(text: str) -> list[str]:
    """Comma-separated operands; commas inside brackets do not split."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return parts
