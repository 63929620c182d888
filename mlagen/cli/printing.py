"""Printing: JSON with a schema name; facts and tables that fit a terminal, and plain lines anywhere
else. `mlagen.cli.terminal` decides how much of it, and in which colours."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from mlagen.cli import terminal
from mlagen.untrusted import indented, printable

_GAP = 2  # between columns
_NARROWEST = 10  # that a column of several words may be


def print_json(schema: str, report: Any, *, version: int = 1, a_line: bool = False) -> None:
    """One JSON object on stdout, `schema` first. `report` is a mapping, struct or dataclass.
    `a_line`: on one line, as one of several."""
    fields = {"schema": f"mlagen.{schema}/{version}", **msgspec.to_builtins(report)}
    try:
        encoded = msgspec.json.encode(fields)
    except UnicodeEncodeError:  # a file's name that is no UTF-8
        encoded = msgspec.json.encode(_spelled(fields))
    click.echo(encoded if a_line else msgspec.json.format(encoded, indent=2))


def _spelled(value: Any) -> Any:
    """Values of JSON with each byte that is no UTF-8 as `\\xff`."""
    if isinstance(value, str):
        return value.encode(errors="surrogateescape").decode(errors="backslashreplace")
    if isinstance(value, dict):
        return {_spelled(name): _spelled(item) for name, item in value.items()}
    return [_spelled(item) for item in value] if isinstance(value, list | tuple) else value


def readable_bytes(count: int) -> str:
    """12 kB, 3.4 MB: decimal units, as file managers count."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return (
                f"{count / size:.1f} {unit}" if count < 10 * size else f"{count / size:.0f} {unit}"
            )
    return f"{count} B"


def say(text: str = "", *, err: bool = False, verdict: bool = False) -> None:
    """A line of text that may be a stranger's. `verdict`: -q leaves it."""
    if verdict or not terminal.only_verdicts():
        click.echo(terminal.painted(printable(text), err=err), err=err)


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Name and value pairs, one a line, values aligned; on a terminal long values go on below."""
    if terminal.only_verdicts():
        facts = [fact for fact in facts if terminal.is_verdict(fact[0])]
    width = max((len(name) for name, _ in facts), default=0)
    columns = terminal.width()
    for name, value in facts:
        value = value or "none"
        text = indented(f"{name:<{width}}  {value}".rstrip())
        if columns is not None:
            text = _wrapped(text, columns, " " * (width + 2))
        if judged := terminal.colour_of_fact(name, value):  # letters of the value's first word
            begin, end = width + 2, width + 2 + judged[0]
            word = terminal.styled(text[begin:end], fg=judged[1], bold=True)
            text = text[:begin] + word + text[end:]
        click.echo(text)


def print_line(text: str) -> None:
    """A line; on a terminal what is too wide goes on below, indented."""
    columns, text = terminal.width(), printable(text)
    click.echo(text if columns is None else _wrapped(text, columns, "    "))


def _wrapped(text: str, columns: int, hanging: str) -> str:
    """Lines that are too long go on under where their values begin; a word stays whole."""
    first, *others = text.split("\n")
    return "\n".join(
        line
        if len(line) <= columns
        else textwrap.fill(
            line, columns, subsequent_indent=indent, drop_whitespace=True,
            break_long_words=False, break_on_hyphens=False,
        )
        for line, indent in [(first, hanging), *((other, hanging) for other in others)]
    )  # fmt: skip


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table under its title; every cell is text."""
    if terminal.only_verdicts():
        return
    rows = [[printable(cell).replace("\n", "\\n") for cell in cells] for cells in rows]
    if (room := terminal.width()) is not None:
        _print_fitting(title, columns, rows, room)
        return
    widths = [max(len(cell) for cell in cells) for cells in zip(columns, *rows, strict=True)]
    click.echo(title)
    for cells in (columns, *rows):
        line = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        click.echo(f"  {line}".rstrip())


def _print_fitting(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], room: int
) -> None:
    """A table no wider than `room`: long cells go on below, between words. Where the columns have
    no room even so, each row is lines of column and value."""
    for line in _wrapped(title, room, "  ").split("\n"):
        click.echo(terminal.styled(line, bold=True))
    widths = _fitting(list(zip(columns, *rows, strict=True)), room - _GAP * (len(columns) - 1))
    if widths is None:
        for row in rows:
            click.echo()
            print_facts([pair for pair in zip(columns, row, strict=True) if pair[1]])
        return
    _print_row(columns, widths, bold=True)
    click.echo("─" * (sum(widths) + _GAP * (len(columns) - 1)))
    for row in rows:
        _print_row(row, widths)


def _print_row(cells: Sequence[str], widths: Sequence[int], **style: Any) -> None:
    folded = [textwrap.wrap(cell, width, break_on_hyphens=False) if len(cell) > width else [cell]
              for cell, width in zip(cells, widths, strict=True)]  # fmt: skip
    for number in range(max(len(lines) for lines in folded)):
        parts = []
        for cell, lines, width in zip(cells, folded, widths, strict=True):
            text = lines[number] if number < len(lines) else ""
            colour = terminal.colour_of_cell(cell)
            parts.append(terminal.styled(text, fg=colour, **style) + " " * (width - len(text)))
        click.echo((" " * _GAP).join(parts).rstrip())


def _fitting(columns: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Widths of `columns` that together have `room`, none less than its longest word; None: there
    are no such widths, or some text would be squeezed into a column of a few letters."""
    whole = [max(map(len, cells)) for cells in columns]
    words = [max((len(word) for cell in cells for word in cell.split()), default=0)
             for cells in columns]  # fmt: skip
    for cap in range(max(whole), _NARROWEST - 1, -1):
        widths = [min(each, max(cap, word)) for each, word in zip(whole, words, strict=True)]
        if sum(widths) <= room:
            return widths
    return None


def print_text(text: str) -> None:
    """Paragraphs; on a terminal none is wider, but for tables and what is indented."""
    columns = terminal.width()
    for part in text.split("\n\n"):
        free = columns is not None and not any(line[:1] in "| \t" for line in part.splitlines())
        click.echo(textwrap.fill(part, columns or 0, break_on_hyphens=False) if free else part)
        click.echo()
