"""Templates name registers by the blocks that the schedule declares: what lies outside is refused,
by the template's line and the schedule's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlagen.app.build import build_artifact
from mlagen.errors import TemplateError

PAGE = Path(__file__).parents[2] / "docs" / "first_kernel.md"


@pytest.fixture
def first_kernel(tmp_path: Path) -> Path:
    """The schedule of docs/first_kernel.md, with its templates beside it."""
    page = PAGE.read_text(encoding="utf-8")
    schedule = re.search(r"```python\n(.*?)```", page, re.S)
    assert schedule is not None
    (tmp_path / "column_sums.py").write_text(schedule[1])
    for name, text in re.findall(r"In `(templates/\S+?)`:\n\n```jinja\n(.*?)```", page, re.S):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "column_sums.py"


def extend(schedule: Path, template: str, line: str) -> None:
    """`template` with one line more at its end."""
    path = schedule.parent / "templates" / "gfx950" / "columns" / f"{template}.s.j2"
    path.write_text(path.read_text() + line + "\n")


def refusal(schedule: Path) -> str:
    with pytest.raises(TemplateError) as caught:
        build_artifact(str(schedule), {}, {})
    return str(caught.value)


def test_the_kernel_itself_is_built(first_kernel):
    assert build_artifact(str(first_kernel), {}, {}).manifest.proof.status == "proved"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        # Numbers: more than there are, and those of some block.
        ("v_add_f32 v200, v200, v201", "v200 belongs to no declared block"),
        ("v_mov_b32 v5, 0", "v5 belongs to no declared block"),
        ("v_mov_b32 {{ lane }}, v300", "v300 belongs to no declared block"),
        ("v_mov_b32 {{ lane }}, -v200", "-v200 belongs to no declared block"),
        ("s_mov_b32 s90, 0", "s90 belongs to no declared block"),
        ("s_mov_b32 s106, 0", "s106 belongs to no declared block"),
        ("s_mov_b64 s[106:107], 0", "s[106:107] belongs to no declared block"),
        ("v_accvgpr_read_b32 {{ lane }}, a0", "a0 belongs to no declared block"),
        ("v_pk_add_f32 v[200:201], v[200:201], v[202:203]", "v[200:201] belongs to no declared"),
        ("buffer_load_dwordx4 v[40:43], {{ lane }}, {{ row }}, 0 offen", "v[40:43] belongs to no"),
        ("buffer_load_dword {{ lane }}, {{ lane }}, s[80:83], 0 offen", "s[80:83] belongs to no"),
        ("buffer_store_dword {{ lane }}, {{ lane }}, {{ row }}, s70 offen", "s70 belongs to no"),
        # Names: past the end of a block, in two of them, of another file.
        ("v_mov_b32 v[SUM+4], 0", "v[SUM+4] reaches outside of block SUM, which has 4 registers"),
        ("v_mov_b32 v[LANE+1], 0", "v[LANE+1] reaches outside of block LANE"),
        ("v_pk_add_f32 v[SUM+3:SUM+4], v[SUM:SUM+1], v[SUM:SUM+1]", "v[SUM+3:SUM+4] reaches out"),
        ("v_pk_add_f32 v[SUM:SUM+1], v[SUM:SUM+1], v[LANE:LANE+1]", "v[LANE:LANE+1] reaches out"),
        ("v_pk_add_f32 v[SUM:LANE], v[SUM:SUM+1], v[SUM:SUM+1]", "runs from block to block"),
        ("v_pk_add_f32 v[SUM+1:SUM], v[SUM:SUM+1], v[SUM:SUM+1]", "reaches outside of block SUM"),
        ("v_mov_b32 v[PTR], 0", "v[PTR] names a block of s registers"),
        ("v_accvgpr_read_b32 {{ lane }}, a[SUM]", "a[SUM] names a block of v registers"),
        ("s_mov_b32 s[ROW+4], 0", "s[ROW+4] reaches outside of block ROW"),
        ("s_mov_b64 s[SIZE+1:SIZE+2], 0", "s[SIZE+1:SIZE+2] reaches outside of block SIZE"),
        ("s_load_dwordx8 s[PTR:PTR+7], {{ entry.kernarg }}, 0x0", "outside of block PTR"),
        (
            "v_mov_b32 {{ lane }}, flat_scratch_lo",
            "neither a register, a known symbol nor a number",
        ),
        ("s_mov_b32 ttmp3, 0", "neither a register, a known symbol nor a number"),
    ],
)
def test_registers_outside_of_the_blocks_are_refused(first_kernel, line, said):
    extend(first_kernel, "add", line)
    message = refusal(first_kernel)
    assert said in message
    assert "columns/add.s.j2:4: " in message
    if "neither" not in said:
        assert re.search(r"column_sums\.py:\d+, add\(i\)\)", message), message
        assert "SUM 4, LANE 1" in message


def test_the_half_that_packed_f32_does_not_read_may_lie_outside(first_kernel):
    line = "v_pk_mul_f32 v[SUM:SUM+1], v[SUM:SUM+1], v[LANE:LANE+1] op_sel_hi:[1,{}]"
    extend(first_kernel, "store", line.format(0))
    build_artifact(str(first_kernel), {}, {})
    extend(first_kernel, "store", line.format(1))
    assert "v[LANE:LANE+1] reaches outside" in refusal(first_kernel)


@pytest.mark.parametrize("character", ["\x00", "\x01", "\x0c", "\x1b", "\x1c", "\x7f", "\x85"])
@pytest.mark.parametrize("line", ["; a{}b", "v_mov_b32 {{{{ lane }}}}, 0{}", "{{{{ '{}' }}}}"])
def test_control_characters_are_refused_at_their_line(first_kernel, character, line):
    extend(first_kernel, "add", line.format(character))
    message = refusal(first_kernel)
    assert f"columns/add.s.j2:4: the control character {character!r} stands in it" in message


def test_control_characters_that_are_computed_are_refused_at_their_line(first_kernel):
    for character in ("\\x01", "\\x1b", "\\x0b"):
        extend(first_kernel, "store", f"; {{{{ '{character}' }}}}")
        message = refusal(first_kernel)
        assert "columns/store.s.j2:2: the control character" in message
