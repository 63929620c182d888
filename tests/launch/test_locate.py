"""Findings on machine code are reported at the schedule's line."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from small_kernel import LOAD_LINE, USE_LINE

from mlagen.artifact import Artifact
from mlagen.binary import CodeObject, load_code_object
from mlagen.locate import locate


@dataclass(frozen=True)
class Found:
    """The fields of an emulator's finding."""

    kind: str
    message: str
    pc: int
    asm: str
    wave: int = 5
    workgroup: tuple[int, int, int] = (0, 0, 0)
    other_pc: int | None = None
    other_asm: str = ""
    other_wave: int | None = None
    resource: str = ""
    needs: str = ""
    count: int = 1
    severity: str = "error"


@pytest.fixture(scope="module")
def code(add_artifact: Artifact) -> CodeObject:
    return load_code_object(add_artifact.code)


def offset(code: CodeObject, line: int) -> int:
    """Byte offset from the entry of the instruction on a line of the text."""
    kernel = code.kernel("add")
    return next(i.offset for i in kernel.instructions if code.line_of(kernel, i.offset) == line)


@pytest.mark.parametrize(
    ("kind", "verb", "relation"),
    [
        ("race-raw", "reads", "written by"),
        ("race-war", "overwrites", "still being read by"),
        ("race-waw", "overwrites", "also written by"),
    ],
)
def test_a_race_names_both_instructions(
    add_artifact: Artifact, code: CodeObject, kind: str, verb: str, relation: str
) -> None:
    finding = Found(
        kind=kind,
        message="not used for a pair",
        pc=offset(code, USE_LINE),
        asm="v_add_u32_e32 v2, s8, v2",
        other_pc=offset(code, LOAD_LINE),
        other_asm="global_load_dword v2, v1, s[4:5]",
        other_wave=1,
        resource="LDS 0x4000..0x400f",
        needs="vmcnt(4)",
        count=12,
        workgroup=(0, 1, 0),
    )
    (located,) = locate([finding], code, add_artifact.manifest)
    assert located.render() == (
        f"error[{kind}] schedules/add.py:27 cluster B, use(x, i): wave 5 {verb} LDS 0x4000..0x400f,"
        f" {relation} wave 1 at :21 (cluster A, load(x, i)).\n"
        "  Needs vmcnt(4) before the barrier that closes cluster A."
        " Seen 12 times, first in workgroup (0, 1, 0).\n"
        "  kernel.s:15  v_add_u32_e32 v2, s8, v2  (add/use.s.j2:5, loop, upper)\n"
        "  kernel.s:13  global_load_dword v2, v1, s[4:5]  (add/load.s.j2:3, loop, lower)"
    )


def test_a_single_instruction(add_artifact: Artifact, code: CodeObject) -> None:
    finding = Found(
        kind="missing-wait",
        message="v2 is used while its load is in flight",
        pc=offset(code, USE_LINE),
        asm="v_add_u32_e32 v2, s8, v2",
        resource="v2",
        needs="vmcnt(0)",
    )
    (located,) = locate([finding], code, add_artifact.manifest)
    assert located.render() == (
        "error[missing-wait] schedules/add.py:27 cluster B, use(x, i):"
        " v2 is used while its load is in flight.\n"
        "  Needs vmcnt(0). Seen once, first in workgroup (0, 0, 0).\n"
        "  kernel.s:15  v_add_u32_e32 v2, s8, v2  (add/use.s.j2:5, loop, upper)"
    )


def test_an_instruction_outside_the_source_map_keeps_its_line(
    add_artifact: Artifact, code: CodeObject
) -> None:
    finding = Found("wait-states", "too early", offset(code, LOAD_LINE + 1), "s_waitcnt vmcnt(0)")
    (located,) = locate([finding], code, add_artifact.manifest)
    assert located.at.source is None
    assert located.render().startswith(f"error[wait-states] kernel.s:{LOAD_LINE + 1}: too early.")


def test_without_a_line_table_the_offset_is_told(add_artifact: Artifact, code: CodeObject) -> None:
    bare = CodeObject(code.target, code.kernels, {})
    finding = Found("wait-states", "too early", 8, "s_nop 0")
    (located,) = locate([finding], bare, add_artifact.manifest)
    assert located.render().startswith("error[wait-states] offset 0x8: too early.")
