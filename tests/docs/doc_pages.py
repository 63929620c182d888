"""Reads a documentation page: its commands, snippets, files and excerpts, in order.

How a page says what a block is:

* ```` ```console ````: lines with `$ ` are commands, those under them what they print. A line `…`
  stands for any lines, `…` inside a line for any text. A command ends with exit code 0, unless the
  next one is `echo $?`.
* ```` ```python ````: a snippet; those of a page share their names.
* any language under a line that ends in `` `path`: ``: a file to write; under `` From `path`: `` an
  excerpt of a file of the repository, in which `...` stands for lines that are left out.
* ```` ```console-gpu ```` and ```` ```python-gpu ````: needs a GPU, and is not run.
* ```` ```text ````: no commands.
* indented blocks: one command a line, behind what it sets in the environment (`NAME=1 `), with a
  remark after it; or a Python snippet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
ELLIPSIS = "…"
PROGRAMS = ("mlagen", "make", "python", "pytest", ".ci/run")

What = Literal["command", "python", "file", "excerpt", "gpu", "text"]

_CAPTION = re.compile(r"`([^`]+)`:$")
_FENCE = re.compile(r"^```(\S*)$")
_COMMAND = re.compile(rf"(?:[A-Z_]+=\S+ )*(?:{'|'.join(map(re.escape, PROGRAMS))})")


@dataclass(frozen=True)
class Item:
    """Something a page shows, from its line `line` on. `text`: the command, code or content;
    `output`: what the page shows a command to print, None where it shows nothing. `path`: of a file
    or an excerpt."""

    what: What
    line: int
    text: str
    output: str | None = None
    path: str = ""


class PageError(Exception):
    """A page holds a block that nobody knows how to run."""


def read_page(text: str) -> list[Item]:
    """The items of a page. PageError for a block of no known kind."""
    items: list[Item] = []
    lines = text.split("\n")
    caption = ""
    n = 0
    while n < len(lines):
        line = lines[n]
        if fence := _FENCE.match(line):
            end = next((m for m in range(n + 1, len(lines)) if lines[m] == "```"), None)
            if end is None:
                raise PageError(f"line {n + 1}: the block does not end")
            items += _block(fence.group(1), lines[n + 1 : end], n + 2, caption)
            n, caption = end + 1, ""
        elif line.startswith("    ") and not caption:
            end = n
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            items += _indented([x.removeprefix("    ") for x in lines[n:end]], n + 1)
            n = end
        else:
            # A paragraph: an indented line inside it is no block.
            caption = line.strip() if line.strip() else caption
            if not line.strip() and n + 1 < len(lines) and not lines[n + 1].startswith("```"):
                caption = ""
            n += 1
    return items


def _block(language: str, body: list[str], line: int, caption: str) -> list[Item]:
    text = "\n".join(body) + "\n"
    if named := _CAPTION.search(caption):
        what: What = "excerpt" if re.search(r"\bFrom `[^`]+`:$", caption) else "file"
        return [Item(what, line, text, path=named.group(1))]
    if language == "console":
        return list(_console(body, line))
    if language == "python":
        return [Item("python", line, text)]
    if language in ("console-gpu", "python-gpu"):
        return [Item("gpu", line, text)]
    if language == "text":
        for offset, shown in enumerate(body):
            if shown.startswith(("$ ", *(f"{program} " for program in PROGRAMS))):
                raise PageError(f"line {line + offset}: a command in a block of text: {shown}")
        return [Item("text", line, text)]
    raise PageError(f"line {line - 1}: a block of {language or 'no language'} is not run")


def _console(body: list[str], line: int) -> list[Item]:
    found: list[Item] = []
    n = 0
    while n < len(body):
        if not body[n].startswith("$ "):
            raise PageError(f"line {line + n}: output without a command: {body[n]}")
        start, command = n, body[n][2:]
        while command.endswith("\\"):
            n += 1
            command = command[:-1] + body[n].removeprefix("> ").lstrip()
        n += 1
        shown = []
        while n < len(body) and not body[n].startswith("$ "):
            shown.append(body[n])
            n += 1
        output = "\n".join(shown) if shown else None
        found.append(Item("command", line + start, command, output))
    return found


def _indented(body: list[str], line: int) -> list[Item]:
    if body[0].startswith(("import ", "from ")):
        return [Item("python", line, "\n".join(body).rstrip() + "\n")]
    found: list[Item] = []
    n = 0
    while n < len(body):
        start, shown = n, body[n]
        while shown.endswith("\\") and n + 1 < len(body):
            n += 1
            shown = shown[:-1] + body[n].lstrip()
        n += 1
        if not shown.strip():
            continue
        if not _COMMAND.match(shown):
            raise PageError(f"line {line + start}: an indented line is no command: {shown}")
        command = re.sub(r"\s{2,}.*$", "", shown).rstrip()
        found.append(Item("command", line + start, command))
    return found


def prints(shown: str, printed: str) -> bool:
    """Whether `printed` is what a page shows, with `…` for what it leaves out."""
    wanted = [x.rstrip() for x in shown.strip("\n").split("\n")]
    pattern = ""
    for line in wanted:
        if line.strip() == ELLIPSIS:
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*".join(map(re.escape, line.split(ELLIPSIS))) + r"\n"
    text = "\n".join(x.rstrip() for x in printed.strip("\n").split("\n")) + "\n"
    return re.fullmatch(pattern, text) is not None


def is_excerpt(shown: str, whole: str) -> bool:
    """Whether the pieces of `shown` between lines `...` stand in `whole`, in this order."""
    lines = [x.rstrip() for x in whole.split("\n")]
    place = 0
    for piece in re.split(r"(?m)^\s*(?:# )?\.\.\.$", shown):
        wanted = _dedented([x.rstrip() for x in piece.strip("\n").split("\n")])
        if wanted == [""]:
            continue
        for start in range(place, len(lines) - len(wanted) + 1):
            if _dedented(lines[start : start + len(wanted)]) == wanted:
                place = start + len(wanted)
                break
        else:
            return False
    return True


def _dedented(lines: list[str]) -> list[str]:
    margin = min((len(x) - len(x.lstrip()) for x in lines if x), default=0)
    return [x[margin:] for x in lines]
