"""Reading PTX text: entries, device functions, their registers' scopes, labels and instructions.

This is a reader of its own: it takes any text that follows the PTX ISA's grammar, whoever wrote it.
Registers, variables and labels that are declared inside `{ … }` are made unique (`%p@3`), as inline
assembly repeats them. Types are not checked; that is the assembler's work.

The text may be a stranger's: it is read in a time that grows with its length. Quantifiers that
could share a character are possessive, nesting and counts have limits.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from mlagen.errors import MissingError, UnsupportedError
from mlagen.ptx.body import Body
from mlagen.ptx.debug import Debug
from mlagen.ptx.declarations import LINE_DIRECTIVE, VARIABLES, variables
from mlagen.ptx.heads import Head, read_head
from mlagen.ptx.operands import NAME
from mlagen.ptx.positions import Positions, located, most
from mlagen.ptx.syntax import Entry, Function, Module, Variable

# A comment or a string: what begins first counts.
_COMMENT = re.compile(r'"[^"\n]*+"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_STRING = re.compile(r'"[^"\n]*+"')
_HEADER = {name: re.compile(rf"^[ \t]*\.{name}[ \t]+([^\s,]+)", re.MULTILINE)
           for name in ("version", "target")}  # fmt: skip
_SECTION = re.compile(r"\.section\b[^{};]*\{")
_FUNCTION = re.compile(r"(?:\.\w+\s+)*?\.(entry|func)\b")
_TEXT = re.compile(r"\S")
_PASSED_OVER = re.compile(r"\.pragma\b")
_ALIAS = re.compile(rf"\.alias\s+({NAME})\s*,\s*({NAME})\s*;")
# Of a file; the largest known, a decode kernel of several items a block, has a tenth of it.
_INSTRUCTIONS = 100_000
_FUNCTIONS = 1_000
_INITIAL = 1 << 26  # bytes
_PRAGMAS = 16  # of a head


@lru_cache(maxsize=4)
def read_ptx(text: str) -> Module:
    """Reads PTX text; the last few are kept. Raises UnsupportedError with the line where the text
    is no PTX or holds more than is read, MissingError where it holds no kernel."""
    if text.startswith("\ufeff"):
        raise UnsupportedError(
            "line 1: the text begins with a byte order mark, which ptxas does not read either",
            hint="store it as UTF-8 without one",
        )
    clean = _COMMENT.sub(_blank, text)
    version, target = (_HEADER[name].search(clean) for name in ("version", "target"))
    if not version or not target:
        raise UnsupportedError(
            "this is no PTX text: it has no .version and .target",
            hint="what is read is the text that ptxas takes, not a cubin",
        )
    reader = _Reader(clean)
    reader.read()
    if not reader.entries:
        raise MissingError("the PTX text holds no .entry")
    return Module(
        version.group(1),
        target.group(1),
        tuple(reader.entries),
        tuple(text.splitlines()),
        tuple(reader.functions),
        reader.variables,
    )


def _blank(match: re.Match[str]) -> str:
    found = match.group()
    if found.startswith("/*") and (len(found) < 4 or not found.endswith("*/")):
        line = match.string.count("\n", 0, match.start()) + 1
        raise UnsupportedError(f"line {line}: a comment that does not end")
    return found if found[0] == '"' else re.sub(r"[^\n]", " ", found)


def _hollow(match: re.Match[str]) -> str:
    return f'"{" " * (len(match.group()) - 2)}"'


class _Reader:
    """A text without comments, on its way."""

    def __init__(self, clean: str) -> None:
        self._debug = Debug(clean)
        # What a string holds is no bracket and no end of a statement.
        self._positions = Positions(_STRING.sub(_hollow, clean))
        self._variables: dict[str, Variable] = {}
        self._defined: set[str] = set()  # functions
        self._aliases: list[tuple[str, str, int]] = []
        self._room, self._bytes = _INSTRUCTIONS, 0
        self.entries: list[Entry] = []
        self.functions: list[Function] = []

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Those of the module so far."""
        return tuple(self._variables.values())

    def read(self) -> None:
        """All of it."""
        positions, at = self._positions, 0
        clean = positions.text
        while match := _TEXT.search(clean, at):
            at = match.start()
            if line := LINE_DIRECTIVE.match(clean, at):
                at = line.end()
            elif section := _SECTION.match(clean, at):
                at = positions.close(section.end() - 1) + 1
            elif function := _FUNCTION.match(clean, at):
                first = positions.line(at)
                with located(first, clean[at : at + 200]):
                    at = self._function(function, first)
                most(len(self.entries) + len(self.functions), _FUNCTIONS, first, "functions")
            elif alias := _ALIAS.match(clean, at):
                self._aliases.append((alias.group(1), alias.group(2), positions.line(at)))
                at = alias.end()
            elif clean[at] in "{};":
                raise UnsupportedError(
                    f"line {positions.line(at)}: a {clean[at]!r} that belongs to nothing"
                )
            else:
                end = positions.statement_end(at)
                if not _PASSED_OVER.match(clean, at):
                    with located(positions.line(at), clean[at:end]):
                        self._declare(variables(clean[at:end], positions.line(at)))
                at = end + 1
        bodies = {function.name: function for function in self.functions}
        for name, of, told in self._aliases:
            if name in self._defined or of not in bodies:
                raise UnsupportedError(f"line {told}: .alias {name[:60]}, {of[:60]}: no such body")
            self.functions.append(replace(bodies[of], name=name))
            most(len(self.functions), _FUNCTIONS, told, "functions")

    def _declare(self, found: list[Variable]) -> None:
        """Variables of the module. One that is elsewhere may be told again, and be here, too."""
        for variable in found:
            before = self._variables.get(variable.name)
            if before and variable.extern:
                continue
            if before and not before.extern:
                raise UnsupportedError(
                    f"line {variable.line}: {variable.name[:60]} is declared twice"
                )
            self._variables[variable.name] = variable
            self._bytes += len(variable.initial)
            most(self._bytes, _INITIAL, variable.line, "bytes of initial values")
            most(len(self._variables), VARIABLES, variable.line, "variables")

    def _function(self, match: re.Match[str], first: int) -> int:
        """Reads a function, and tells where it ends; prototypes are passed over."""
        positions, at = self._positions, match.end()
        brace = self._brace(at)
        if brace < 0:
            return positions.statement_end(at) + 1
        end = positions.close(brace)
        head = read_head(positions, at, brace, first)
        if head.name in self._defined:
            raise UnsupportedError(f"line {first}: {head.name[:60]} is defined twice")
        self._defined.add(head.name)
        body = Body(
            positions,
            (brace + 1, end),
            self._room,
            self._debug,
            frozenset(self._variables),
            [p for p in (*head.results, *head.parameters) if p.space == "reg"],
        )
        self._room -= len(body)
        if match.group(1) == "func":
            self.functions.append(
                Function(
                    head.name, first, head.results, head.parameters, body.finish(),
                    tuple(body.variables), body.registers,
                )
            )  # fmt: skip
        else:
            self.entries.append(self._entry(head, body))
        return end + 1

    def _brace(self, at: int) -> int:
        """The brace that opens a body, -1 for a prototype."""
        text = self._positions.text
        for _ in range(_PRAGMAS):
            semicolon = text.find(";", at)
            brace = text.find("{", at, semicolon if semicolon >= 0 else len(text))
            # A semicolon behind a string ends a `.pragma "…";` of the head.
            if brace >= 0 or text[semicolon - 1] != '"':
                return brace
            at = semicolon + 1
        return -1

    def _entry(self, head: Head, body: Body) -> Entry:
        said = head.said
        return Entry(
            name=head.name,
            line=head.line,
            parameters=head.parameters,
            instructions=body.finish(),
            variables=(*self.variables, *body.variables),
            block=said.get("reqntid") or said.get("maxntid") or (),
            exact_threads="reqntid" in said,
            max_registers=head.number("maxnreg"),
            registers=body.registers,
            cluster=said.get("reqnctapercluster", ()),
            explicit_cluster="explicitcluster" in said,
            max_cluster_rank=head.number("maxclusterrank"),
            grid_of_clusters="blocksareclusters" in said,
            min_blocks=head.number("minnctapersm"),
        )
