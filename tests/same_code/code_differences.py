"""What differs between two snapshots, and what of it is wanted."""

from __future__ import annotations

import difflib
import json
import tomllib
import zlib
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHOWN = 12  # lines of a difference


@dataclass(frozen=True, slots=True)
class Difference:
    """`kind`: "code", "sass", a fact's name, or "builds" where one side refuses the form."""

    form: str
    kind: str
    told: str


def read_snapshot(*paths: Path) -> dict[str, dict[str, Any]]:
    """Lines of all shards, by form."""
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return {line["form"]: line for line in lines}


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], sass: frozenset[str]
) -> list[Difference]:
    """`sass`: forms whose machine code counts beside their PTX. A form that one side lacks is an
    error of the caller's: both were made from one list."""
    found = []
    for form in old:
        was, now = old[form], new[form]
        if "refused" in was or "refused" in now:
            if was.get("refused") != now.get("refused"):
                told = (line.get("refused", "builds") for line in (was, now))
                found.append(Difference(form, "builds", " -> ".join(told)))
            continue
        if was["code"] != now["code"]:
            found.append(Difference(form, "code", _lines(was["text"], now["text"])))
        elif form in sass and was["sass"] != now["sass"]:
            found.append(Difference(form, "sass", "equal PTX became other machine code"))
        for name, fact in was["facts"].items():
            if fact != now["facts"][name]:
                found.append(Difference(form, name, f"{fact} -> {now['facts'][name]}"))
    return found


def _lines(was: str, now: str) -> str:
    old, new = (zlib.decompress(b64decode(text)).decode().splitlines() for text in (was, now))
    told = list(difflib.unified_diff(old, new, "old", "new", n=0, lineterm=""))[2:]
    more = f"\n… {len(told) - SHOWN} lines more" if len(told) > SHOWN else ""
    return "\n".join(told[:SHOWN]) + more


def wanted(path: Path, found: list[Difference]) -> tuple[list[Difference], list[str]]:
    """(those that no row of the file wants, reasons of rows that fit nothing any more). A row has
    `forms`, words that a form has, `kinds`, and `reason`."""
    rows = tomllib.loads(path.read_text()).get("difference", [])
    used, left = [0] * len(rows), []
    for one in found:
        words = set(one.form.split())
        for number, row in enumerate(rows):
            if set(row["forms"]) <= words and one.kind in row["kinds"]:
                used[number] += 1
                break
        else:
            left.append(one)
    return left, [row["reason"] for row, times in zip(rows, used, strict=True) if not times]
