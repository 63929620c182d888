"""A kernel's file shows its default table, layout and budget: what it says of them is so."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from mlagen.codegen.schedules import available, load
from mlagen.codegen.target import schedule_of
from mlagen.dsl import ScheduleFunction
from mlagen.targets.gfx950.limits import GFX950

# Every kernel that is shipped, with the problem whose table its file shows.
KERNELS: dict[str, dict[str, Any]] = {
    "mha_prefill_v2": {"num_heads": 1, "num_kv_heads": 1},
    "mla_prefill_v2": {"num_heads": 1, "num_kv_heads": 1},
    "mla_prefill_reduce": {"num_heads": 1},
    "mla_decode_gfx950": {"num_heads": 16},
    "mla_decode_merge_gfx950": {"num_heads": 16},
    "mla_sparse_decode_gfx950": {"num_heads": 64},
    "mla_sparse_prefill_gfx950": {"num_heads": 64},
    "mla_decode_sm90": {"num_heads": 64},
    "mla_decode_merge_sm90": {"num_heads": 64},
    "mla_sparse_decode_sm90": {"num_heads": 64},
    "mla_sparse_prefill_sm90": {"num_heads": 64},
    "mla_decode_sm100": {"num_heads": 64},
    "mla_decode_merge_sm100": {"num_heads": 64},
    "mla_sparse_decode_sm100": {"num_heads": 64},
    "mla_sparse_prefill_sm100": {"num_heads": 64},
}


def tables(doc: str) -> list[list[list[str]]]:
    """Cells of each table of a docstring, row by row, without its ruler."""
    found = re.findall(r"(?:^\|.*\|\n?)+", doc, re.M)
    return [
        [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()
         if not re.fullmatch(r"[|\-]+", line)]
        for table in found
    ]  # fmt: skip


def of(number: int, whole: int, unit: str) -> str:
    return f"{number} of {whole} {unit}"


def check_clusters(doc: str, text: str, schedule: Any) -> list[str]:
    """What a file says wrong of a kernel on gfx950: clusters, LDS, registers."""
    wrong = []
    names = [row[0] for row in tables(doc)[0][1:] if row[0]]
    if names != [cluster.name for cluster in schedule.loop]:
        wrong.append(f"clusters {names}")
    lds = of(schedule.lds.used, GFX950.lds_bytes, "bytes")
    if schedule.lds.used and "s.lds.ring(" not in text and lds not in doc:
        wrong.append(f"no LDS of {lds}")
    held = {name: block.count for name, block in schedule.registers.blocks.items()}
    for name in () if "s.registers.tile(" in text else ("O", "Q"):
        if not re.search(rf"\b{name}\s(?:has )?{held[name]}\b", " ".join(doc.split())):
            wrong.append(f"no registers of {name}, {held[name]}")
    return wrong


def check_roles(doc: str, text: str, schedule: Any) -> list[str]:
    """What a file says wrong of a kernel of roles: they, SMEM, TMEM, registers of each."""
    wrong = []
    roles = {stream.role.name: stream.role.registers for stream in schedule.streams}
    table, memory, *_ = tables(doc)
    shown = [cell.partition(",")[0] for cell in table[0]]
    if sorted(shown) != sorted(roles):
        wrong.append(f"roles {shown}")
    said = " ".join(cell for row in memory for cell in row)
    for used, whole, unit in (
        (schedule.smem.used, schedule.smem.capacity, "bytes"),
        (schedule.tmem.used, schedule.tmem.capacity, "columns"),
    ):
        if used and of(used, whole, unit) not in said:
            wrong.append(f"not {of(used, whole, unit)}")
    for name, registers in roles.items():
        if f"{name} {registers}" not in said and (registers or "launch's share" not in said):
            wrong.append(f"registers of {name}, {registers}")
    return wrong


def built(name: str) -> tuple[ScheduleFunction, Any]:
    function = load(name, None)
    problem: Any = function.problem_type
    return function, schedule_of(function, problem(**KERNELS[name]), {})


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernels_file_shows_what_is_built(name: str) -> None:
    function, schedule = built(name)
    text = function.path.read_text()
    doc = text.split('"""')[1]
    check = check_clusters if function.target == "gfx950" else check_roles
    assert check(doc, text, schedule) == []


def test_no_kernels_file_is_left_out() -> None:
    assert {one.name for one in available()} == set(KERNELS)


@pytest.mark.parametrize(
    "before, after, wrong",
    [
        ("| left, tiles", "| upper, tiles", "roles"),
        ("231424 of", "231424 or more of", "not 231424 of 232448 bytes"),
        ("right 256", "right 248", "registers of right, 256"),
    ],
)
def test_what_is_wrong_is_told(before: str, after: str, wrong: str) -> None:
    function, schedule = built("mla_decode_sm90")
    doc = function.path.read_text().split('"""')[1]
    assert before in doc
    (told,) = check_roles(doc.replace(before, after), "", schedule)
    assert told.startswith(wrong)


def test_what_is_wrong_of_clusters_is_told() -> None:
    block = SimpleNamespace(count=72)
    schedule = SimpleNamespace(
        loop=(SimpleNamespace(name="A"),), lds=SimpleNamespace(used=64),
        registers=SimpleNamespace(blocks={"O": block, "Q": block}),
    )  # fmt: skip
    right = "| cluster |\n|---|\n| A |\n\nLDS has 64 of 163840 bytes. O has 72, Q 72."
    assert check_clusters(right, "", schedule) == []
    told = check_clusters("| cluster |\n|---|\n| B |\n\nLDS has 65. O has 72, Q 71.", "", schedule)
    assert [one.split()[0] for one in told] == ["clusters", "no", "no"]
