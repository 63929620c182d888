"""Capacities stand in one table a target, and each of them is read."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mlagen.targets.registry import TARGETS, limits_of

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {path: path.read_text() for path in sorted((ROOT / "mlagen").rglob("*.py"))}


def readers(target: str, field: str) -> list[Path]:
    """Files that read `field` of the target's table, its own methods among them. What targets have
    in common stands in one table, and may be read from that of each."""
    of = next((c for c in type(limits_of(target)).__mro__[::-1] if field in vars(c)), object)
    names = [
        name.upper() for name in TARGETS if of is not object and isinstance(limits_of(name), of)
    ]
    table = "|".join(["self", "cls", r"limits(?:_of\([^()]*\))?", "target", of.__name__, *names])
    read = re.compile(rf"\b(?:{table})\.{field}\b")
    told = re.compile(rf"\b(?:{'|'.join([target, 'limits(?:_of)?', *names])})\b")
    return [path for path, text in SOURCES.items() if told.search(text) and read.search(text)]


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_every_field_is_read(target: str) -> None:
    fields = [field.name for field in dataclasses.fields(limits_of(target))]
    assert fields and [name for name in fields if not readers(target, name)] == []


def test_a_field_that_nothing_reads_would_be_seen() -> None:
    assert readers("gfx950", "lds_bytes") and not readers("gfx950", "lds_colour")


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_limits_load_nothing_else(target: str) -> None:
    code = f"import mlagen.targets.{target}.limits, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    ours = {name for name in loaded.stdout.split() if name.startswith("mlagen.")}
    tables = [
        f"mlagen.targets.{name}" for name in (target, *(["nvidia"] * target.startswith("sm_")))
    ]
    assert ours <= {"mlagen.targets", *tables, *(f"{table}.limits" for table in tables)}
