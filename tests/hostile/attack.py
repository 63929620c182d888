"""An attack on the command line: what lies in the folder, what is called, how it must end."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox import Ran

OK, REFUSED, FINDINGS, MISSING = 0, 2, 4, 5


@dataclass(frozen=True)
class Attack:
    """`prepare` changes the prepared folder; `command` is then called in it. It ends with one of
    `codes`, and says `said`, a pattern. The files called `kept` stay as they are."""

    name: str
    command: tuple[str, ...]
    prepare: Callable[[Path], object] = lambda folder: None
    codes: tuple[int, ...] = (REFUSED, MISSING)
    said: str = ""
    kept: tuple[str, ...] = ()

    def judge(self, ran: Ran) -> None:
        """AssertionError where it did not end as it must: no traceback, no defect, no hang, no
        unbounded memory, one clear message."""
        ran.check(several="several files" in self.name)
        told = ran.out + ran.err
        assert ran.code in self.codes, f"{self.name}: exit code {ran.code}: {told[-1500:]}"
        assert re.search(self.said, told), f"{self.name}: {told[-1500:]}"
        if ran.code in (REFUSED, MISSING):
            assert ran.err.count("error") >= 1 and ran.err


def link(target: str, name: str) -> Callable[[Path], object]:
    """Puts a link in the place of a file."""

    def prepare(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return prepare


def pipe(name: str) -> Callable[[Path], object]:
    """Puts a pipe that nobody writes to in the place of a file."""

    def prepare(folder: Path) -> None:
        import os

        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return prepare


def holding(name: str, data: bytes | str) -> Callable[[Path], object]:
    """Writes a file."""

    def prepare(folder: Path) -> None:
        path = folder / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)

    return prepare


def sparse(name: str, size: int) -> Callable[[Path], object]:
    """Makes a file of zeros that takes no room."""

    def prepare(folder: Path) -> None:
        with (folder / name).open("wb") as file:
            file.truncate(size)

    return prepare
