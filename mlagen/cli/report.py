"""Printing: JSON with a schema name, rich tables on a terminal, plain columns anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
import msgspec

from mlagen.untrusted import indented, printable

Progress = Callable[[int, int], None]


def print_json(schema: str, report: Any, *, version: int = 1) -> None:
    """One JSON object on stdout, `schema` first. `report` is a mapping, struct or dataclass."""
    fields = {"schema": f"mlagen.{schema}/{version}", **msgspec.to_builtins(report)}
    click.echo(msgspec.json.format(msgspec.json.encode(fields), indent=2))


def readable_bytes(count: int) -> str:
    """12 kB, 3.4 MB: decimal units, as file managers count."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return (
                f"{count / size:.1f} {unit}" if count < 10 * size else f"{count / size:.0f} {unit}"
            )
    return f"{count} B"


def say(text: str = "", *, err: bool = False) -> None:
    """A line of text that may be a stranger's."""
    click.echo(printable(text), err=err)


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Name and value pairs, one a line, values aligned."""
    width = max((len(name) for name, _ in facts), default=0)
    for name, value in facts:
        click.echo(indented(f"{name:<{width}}  {value}".rstrip()))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table under its title; every cell is text."""
    rows = [[printable(cell).replace("\n", "\\n") for cell in cells] for cells in rows]
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False)
        table.title_justify, table.title_style = "left", "bold"
        for column in columns:
            table.add_column(column, overflow="fold")  # a path cut short is no path
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))  # Text: brackets in cells are no markup
        Console().print(table)
        return
    widths = [max(len(cell) for cell in cells) for cells in zip(columns, *rows, strict=True)]
    click.echo(title)
    for cells in (columns, *rows):
        line = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        say(f"  {line}".rstrip())


class ProgressBar:
    """A callback (done, total); `count(n)` where nobody knows how many there will be."""

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task = bar, task

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)

    def say(self, text: str) -> None:
        """How far it is, in words."""
        self._bar.update(self._task, count=text)

    def count(self, executed: int) -> None:
        """So many wave-instructions were executed."""
        self.say(f"{executed / 1e6:.1f} M wave-instructions")


@contextmanager
def progress_bar(title: str) -> Iterator[ProgressBar | None]:
    """A progress callback (done, total) on a terminal, with the time left; None anywhere else."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        yield ProgressBar(bar, bar.add_task(title, total=None, count=""))
