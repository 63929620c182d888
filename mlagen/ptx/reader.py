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

from mlagen.errors import MissingError, UnsupportedError
from mlagen.ptx.body import Body
from mlagen.ptx.declarations import LINE_DIRECTIVE, NAME, VARIABLES, parameters, variables
from mlagen.ptx.positions import Positions, located, most
from mlagen.ptx.syntax import Entry, Module, Variable
from mlagen.targets.sm_90a.limits import SM_90A

THREADS = SM_90A.max_block_threads
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_HEADER = {name: re.compile(rf"^[ \t]*\.{name}[ \t]+([^\s,]+)", re.MULTILINE)
           for name in ("version", "target")}  # fmt: skip
_SECTION = re.compile(r"\.section\b[^{};]*\{")
_PERF = re.compile(r"\.(reqntid|maxntid|maxnreg)\s+([\d\s,]+)")
_FUNCTION = re.compile(r"(?:\.\w+\s+)*?\.(entry|func)\b")
_TEXT = re.compile(r"\S")
_ENTRY_NAME = re.compile(rf"\s*({NAME})")
# Of a file; the largest known, a decode kernel of several items a block, has a tenth of it.
_INSTRUCTIONS = 100_000
_ENTRIES = 1_000


def read_ptx(text: str) -> Module:
    """Reads PTX text. Raises UnsupportedError with the line where the text is no PTX or holds more
    than is read, MissingError where it holds no kernel."""
    clean = _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    version, target = (_HEADER[name].search(clean) for name in ("version", "target"))
    if not version or not target:
        raise UnsupportedError(
            "this is no PTX text: it has no .version and .target",
            hint="what is read is the text that ptxas takes, not a cubin",
        )
    declared: list[Variable] = []
    entries: list[Entry] = []
    total = at = 0
    positions = Positions(clean)
    while at < len(clean):
        match = _TEXT.search(clean, at)
        if not match:
            break
        at = match.start()
        if line := LINE_DIRECTIVE.match(clean, at):
            at = line.end()
        elif section := _SECTION.match(clean, at):
            at = positions.close(section.end() - 1) + 1
        elif function := _FUNCTION.match(clean, at):
            first = positions.line(at)
            with located(first, clean[at : at + 60]):
                at, entry = _function(positions, function, tuple(declared), _INSTRUCTIONS - total)
            if entry:
                entries.append(entry)
                total += len(entry.instructions)
            most(len(entries), _ENTRIES, first, "kernels")
        elif clean[at] in "{};":
            at += 1
        else:
            end = positions.statement_end(at)
            with located(positions.line(at), clean[at:end]):
                declared += variables(clean[at:end], positions.line(at))
            most(len(declared), VARIABLES, positions.line(at), "variables")
            at = end + 1
    if not entries:
        raise MissingError("the PTX text holds no .entry")
    return Module(version.group(1), target.group(1), tuple(entries), tuple(text.splitlines()))


def _function(
    positions: Positions, match: re.Match[str], declared: tuple[Variable, ...], room: int
) -> tuple[int, Entry | None]:
    """Where a function ends, and the entry; device functions and prototypes are passed over."""
    text, at = positions.text, match.end()
    semicolon = text.find(";", at)
    brace = text.find("{", at, semicolon if semicolon >= 0 else len(text))
    if brace < 0:
        return positions.statement_end(at) + 1, None  # a prototype
    end = positions.close(brace)
    if match.group(1) == "func":
        return end + 1, None
    name = _ENTRY_NAME.match(text, at)
    if not name:
        raise UnsupportedError(f"line {positions.line(at)}: an .entry without a name")
    start = name.end()
    head = text[start:brace]
    numbers = {m.group(1): [int(n) for n in m.group(2).split(",")] for m in _PERF.finditer(head)}
    block = tuple(numbers.get("reqntid") or numbers.get("maxntid") or ())
    _block(block, positions.line(match.start()))
    body = Body(positions, brace + 1, end, room)
    return end + 1, Entry(
        name=name.group(1),
        line=positions.line(match.start()),
        parameters=parameters(head, lambda at: positions.line(start + at)),
        instructions=body.finish(),
        variables=(*declared, *body.variables),
        block=block,
        exact_threads="reqntid" in numbers,
        max_registers=numbers.get("maxnreg", [0])[0],
    )


def _block(block: tuple[int, ...], line: int) -> None:
    """Refuses a block that no launch has."""
    whole = len(block) <= 3 and all(1 <= extent <= THREADS for extent in block)
    if whole and math.prod(block) <= THREADS:
        return
    shown = " x ".join(map(str, block[:3])) + (" x …" if len(block) > 3 else "")
    raise UnsupportedError(
        f"line {line}: a block of {shown:.60} threads; it has 1 to {THREADS}, in up to 3 dimensions"
    )
