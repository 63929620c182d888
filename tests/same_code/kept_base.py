"""Digests of what a base commit builds of each form, for tests that compare samples with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

BASE = Path(__file__).resolve().parent / "base.jsonl"


def digests(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """Of a form's snapshot: its code, each of its facts, and the tools that made it."""
    if "refused" in snapshot:
        return dict(snapshot)
    facts = {name: _digest(fact) for name, fact in snapshot["facts"].items()}
    return {
        "form": snapshot["form"], "code": _digest(snapshot["code"]), "facts": facts,
        "tools": snapshot.get("tools", {}),
    }  # fmt: skip


def differing(base: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Kinds of differences between two forms' digests, as code_differences.py names them."""
    if "refused" in base or "refused" in now:
        return ["builds"] if base.get("refused") != now.get("refused") else []
    code = ["code"] if base["code"] != now["code"] else []
    return code + [name for name, fact in base["facts"].items() if now["facts"][name] != fact]


def write_base(commit: str, snapshots: Iterable[Mapping[str, Any]]) -> None:
    rows = [{"commit": commit}, *map(digests, snapshots)]
    BASE.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_base() -> dict[str, dict[str, Any]]:
    """By form."""
    _, *rows = map(json.loads, BASE.read_text().splitlines())
    return {row["form"]: row for row in rows}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
