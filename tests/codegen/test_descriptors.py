"""Operands of products begin where their swizzle does, or the schedule is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of, templates_for
from mlagen.errors import ProofError
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.nvidia.codegen.descriptors import _misplaced, _Sum, check_descriptors
from mlagen.targets.nvidia.codegen.ptx_text import print_streams
from mlagen.targets.nvidia.codegen.thin import plan
from mlagen.targets.nvidia.dsl.smem import Smem

BF16 = MlaDecodeConfig(16)
E4M3 = MlaDecodeConfig(16, dtype="fp8_e4m3", cache_dtype="fp8_e4m3", compute="fp8")


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Moves what a schedule declares under some names, or all of it, up in shared memory."""

    def move(by: int, *names: str) -> None:
        for method, kept in (("tile", "tiles"), ("room", "scratches"), ("exchange", "exchanges")):
            declares = getattr(Smem, method)

            def declared(
                self: Smem, name: str, *args: Any, declares: Any = declares, kept: str = kept,
                **more: Any,
            ) -> Any:  # fmt: skip
                block = declares(self, name, *args, **more)
                if names and name not in names:
                    return block
                block = getattr(self, kept)[name] = replace(block, base=block.base + by)
                return block

            monkeypatch.setattr(Smem, method, declared)

    return move


@pytest.mark.parametrize(
    ("kernel", "problem", "name", "by", "width"),
    [
        ("mla_decode_sm90", BF16, "P", 32, 128),  # as if a step of K further
        ("mla_decode_sm90", BF16, "P", 512, 128),
        ("mla_decode_sm90", E4M3, "P", 16, 64),
        ("mla_decode_sm100", BF16, "P0", 256, 128),
        ("mla_decode_sm100", E4M3, "P0", 16, 128),
    ],
)
def test_an_operand_beside_its_pattern_is_refused(
    kernel: str, problem: Any, name: str, by: int, width: int, moved: Any
) -> None:
    moved(by, name)
    with pytest.raises(ProofError) as error:
        build(kernel, problem)
    first = str(error.value).splitlines()[0]
    assert first.startswith("error[operand-alignment] ") and f" reads {name!r} at byte " in first
    assert f"its {width}-byte swizzle repeats every {8 * width} bytes" in first
    place = int(first.partition(" at byte ")[2].split()[0])
    assert place % (8 * width) == by
    fits = -(-place // (8 * width)) * 8 * width
    if name == "P" and kernel == "mla_decode_sm90":
        assert first.endswith(f"`align={8 * width}` in the room's declaration puts it at {fits}")
    else:
        assert first.endswith(f"{fits} is one")


def test_places_between_which_a_slot_decides() -> None:
    """Slots of 1024 bytes are all right, and half of those of 512 are not; a step of K may be."""

    class Schedule:
        smem = Smem(1 << 17)

    Schedule.smem.room("P", 1 << 16, align=1024)
    for step, wrong in ((1024, False), (512, True), (32, False), (0, False)):
        assert bool(_misplaced(Schedule, _Sum(64, step // 16), 128)) is wrong  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kernel", "problem"),
    [("mla_decode_sm90", BF16), ("mla_decode_sm90", E4M3), ("mla_decode_sm100", BF16)],
)
def test_every_product_is_looked_at(kernel: str, problem: Any, moved: Any) -> None:
    moved(64)
    function = load(kernel, None)
    schedule = schedule_of(function, problem, {})
    loops, _ = plan(schedule)
    printed = print_streams(schedule, templates_for(function.target, function.templates), loops)
    told = check_descriptors(schedule, loops, printed)
    products = {str(op) for s in schedule.streams for op in s.loop if op.asynchronous}
    assert products and {one.partition(" of role ")[0].split()[-1] for one in told} == products
