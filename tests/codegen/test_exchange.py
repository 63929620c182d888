"""What waves of gfx950 exchange through LDS: waits and barriers are derived and proved, and what
cannot be ordered is refused. The kernel is the RMSNorm of the examples, its clusters rearranged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mlagen.app.build import build_artifact, written_schedule
from mlagen.cli.main import run
from mlagen.codegen.target import templates_for
from mlagen.errors import MlagenError, ScheduleError, TemplateError
from mlagen.targets.gfx950.codegen.build import generate
from mlagen.targets.gfx950.dsl import Exchange
from mlagen.targets.gfx950.dsl.lds import Lds

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CLUSTERS = """        with cluster("square"):
            norm.load(i + ahead)
            norm.square(i)
        with cluster("scale"):
            norm.total(i)
            norm.scale(i)
"""
SQUARE, TOTAL, SCALE = (f"            norm.{name}(i)\n" for name in ("square", "total", "scale"))
ONE = """        with cluster("row"):
            norm.load(i + ahead)
            norm.square(i)
            norm.total(i)
            norm.scale(i)
"""
AHEAD = ONE.replace(SQUARE + TOTAL + SCALE, TOTAL + SCALE + SQUARE.replace("(i)", "(i + 1)"))
COUNTED = ONE.replace(SQUARE + TOTAL + SCALE, "            norm.count(i)\n")
AFTER = """    with epilogue():
        norm.square(None)
        norm.total(None)
        norm.scale(None)
"""


@pytest.fixture
def norm(tmp_path: Path):
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)

    def edited(*edits: tuple[str, str, str]) -> Path:
        for name, old, new in (("rmsnorm.py", "", ""), *edits):
            path = tmp_path / name
            text = path.read_text()
            assert old in text, old
            path.write_text(text.replace(old, new) if old else text)
        return tmp_path / "rmsnorm.py"

    return edited


def scheduled(file: Path):
    return written_schedule(str(file), {}, {}, target="gfx950").schedule


def generated(file: Path):
    return generate(scheduled(file), templates_for("gfx950", file.parent / "templates"))


def joints(program) -> list[str]:
    """What stands right before the barriers inside of pieces, and not at their ends."""
    found = []
    for piece in program.layout.pieces():
        for at, x in enumerate(piece.body[:-1]):
            if x.pipe == "barrier":
                found.append(piece.body[at - 1].text)
    return found


def test_between_clusters_the_barrier_that_ends_one_orders_them(norm) -> None:
    program = generated(norm())
    assert not program.proof.violations and not joints(program)
    written = [
        piece
        for piece in program.layout.pieces()
        if any(x.mnemonic == "ds_write_b32" for x in piece.body)
    ]
    assert written
    for piece in written:
        assert piece.closed and "lgkmcnt(0)" in piece.body[-2].text


def test_inside_of_a_cluster_a_wait_and_a_barrier_are_derived(norm, capsys) -> None:
    """And the slot of a tile is written again only after all have read it: with one slot too."""
    file = norm(("rmsnorm.py", CLUSTERS, ONE))
    program = generated(file)
    assert not program.proof.violations
    assert joints(program) and set(joints(program)) == {"s_waitcnt lgkmcnt(0)"}
    assert run(["verify", str(file), "--target", "gfx950", "--shape", "m=19"]) == 0
    capsys.readouterr()


def test_a_second_slot_saves_a_barrier(norm, capsys) -> None:
    """With one slot the sums of the next row would overwrite what other waves still read."""
    slots = ("norms/gfx950.py", "4 * WAVES, comment", "16, slots=2, comment")
    file = norm(("rmsnorm.py", CLUSTERS, AHEAD), slots)
    program = generated(file)
    assert not program.proof.violations and not joints(program)
    assert run(["verify", str(file), "--target", "gfx950", "--shape", "m=19"]) == 0
    capsys.readouterr()


def test_a_derived_barrier_that_is_taken_out_is_missed(norm, tmp_path: Path, capsys) -> None:
    """The proof reads the printed program: without its barrier, or its wait, it finds the race."""
    from mlagen.targets.gfx950.codegen.proof import prove

    file = norm(("rmsnorm.py", CLUSTERS, ONE))
    made = scheduled(file)
    for pipe in ("barrier", "wait"):
        program = generate(made, templates_for("gfx950", file.parent / "templates"))
        for piece in program.layout.pieces():
            piece.body = [
                x
                for x in piece.body
                if not (x.pipe == pipe and x.origin and x.origin.operation == "exchange SUMS")
            ]
        assert prove(made, program.layout).violations


def test_in_an_epilogue(norm, capsys) -> None:
    """Sums that waves have when the loop is over meet there, behind a derived barrier."""
    changes = (
        ("rmsnorm.py", CLUSTERS, COUNTED + AFTER),
        ("rmsnorm.py", "import prologue,", "import epilogue, prologue,"),
        ("norms/gfx950.py", 'tile=("load", "square", "total", "scale"), after=()',
         'tile=("load", "count"), after=("square", "total", "scale")'),
        ("norms/gfx950.py", "    def total(", "    def count(self, tile):\n        self.operation("
         '"count", tile, uses=(Value("X", tile),))\n\n    def total('),
    )  # fmt: skip
    file = norm(*changes)
    template = file.parent / "templates/gfx950/norms/count.s.j2"
    template.write_text("v_mov_b32 {{ y[0] }}, {{ x[0] }}\n")
    program = generated(file)
    assert not program.proof.violations
    assert joints(program) == ["s_waitcnt lgkmcnt(0)"]


@pytest.mark.parametrize(
    ("edits", "error", "said"),
    [
        ([("norms/gfx950.py", 'Value("F", tile), Value("SUMS", tile))', 'Value("F", tile),)')],
         ScheduleError, "exchange 'SUMS' is written by nobody"),
        ([("norms/gfx950.py", '"total", tile, uses=(Value("SUMS", tile),), ', '"total", tile, ')],
         ScheduleError, "exchange 'SUMS' is read by nobody"),
        ([("norms/gfx950.py", "4 * WAVES, comment", "2 * WAVES, comment")],
         ScheduleError, "exchange 'SUMS' has 8 size, operations touch exactly 16"),
        ([("norms/gfx950.py", "4 * WAVES, comment", "0, comment")],
         ScheduleError, "exchange 'SUMS': 1 slots of 0 bytes"),
        ([("norms/gfx950.py", "4 * WAVES, comment", "163844, comment")],
         MlagenError, "LDS ran out: exchange 'SUMS' wants 1 x 163856 bytes on top of 0"),
        ([("templates/gfx950/norms/square.s.j2", "ds_write_b32", "; ds_write_b32")],
         TemplateError, "writes exchange 'SUMS', and there is no ds_write in it"),
        ([("templates/gfx950/norms/total.s.j2", "ds_read_b128", "; ds_read_b128")],
         TemplateError, "reads exchange 'SUMS', and there is no ds_read in it"),
        ([("norms/gfx950.py", 'vector("W", words', 'vector("SUMS", words')],
         ScheduleError, "exchange 'SUMS' has the name of a register block"),
        ([("rmsnorm.py", CLUSTERS, ONE.replace(
            SQUARE + TOTAL, "            interleave(norm.square(i), norm.total(i))\n")),
          ("rmsnorm.py", "import cluster, roles", "import cluster, interleave, roles")],
         ScheduleError, "is interleaved, and reads exchange 'SUMS'"),
        ([("rmsnorm.py", CLUSTERS, ONE.replace(SQUARE + TOTAL, TOTAL + SQUARE))],
         MlagenError, "used but nothing defines it|holds nothing"),
        ([("rmsnorm.py", "roles(all=range(WAVES))", "roles(a=range(2), b=range(2, 4), apart=True)"),
          ("rmsnorm.py", CLUSTERS, ONE)],
         ScheduleError, "roles have code of their own"),
        ([("rmsnorm.py", CLUSTERS, AHEAD)], MlagenError, "race-war"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(norm, edits, error, said) -> None:
    file = norm(*edits)
    with pytest.raises(error, match=said):
        build_artifact(str(file), {}, {}, target="gfx950")


def test_an_exchange_lies_on_sixteen_bytes() -> None:
    lds = Lds(163840, 16)
    first, second = lds.exchange("a", 4, slots=3), lds.exchange("b", 20)
    assert isinstance(first, Exchange) and isinstance(second, Exchange)
    assert [first.slot_base(tile) for tile in range(4)] == [0, 16, 32, 0]
    assert (second.base, lds.used) == (48, 80)
    with pytest.raises(ScheduleError, match="exchange 'a' is declared twice"):
        lds.exchange("a", 4)
