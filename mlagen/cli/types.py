"""Values of options, checked when the command line is read: before anything runs."""

from __future__ import annotations

import math
from typing import Any

import click

from mlagen.cli.replacing import forced
from mlagen.disk import checked_output, require_own


class _Name(click.ParamType):
    """The name of something that is read; an empty one names nothing."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("'' names nothing", param, ctx)
        return str(value)


class _Output(click.ParamType):
    """A file or folder to be written; refused where that can be known not to work, and where a
    file lies that mlagen did not make, unless `--force` is given."""

    name = "output"

    def __init__(self, *, folder: bool) -> None:
        self.folder = folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail(f"'' names no {'folder' if self.folder else 'file'}", param, ctx)
        path = checked_output(value, folder=self.folder)
        if not self.folder and not forced():
            require_own(path)
        return str(path)


class Amount(click.FloatRange):
    """A finite number."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number", param, ctx)
        return number


NAME = _Name()
OUT_FILE, OUT_FOLDER = _Output(folder=False), _Output(folder=True)
COUNT = click.IntRange(0)
SEED = click.IntRange(0, 2**32 - 1)
