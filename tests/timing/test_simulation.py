"""Loops, whole launches, the sensitivity grid, comparison, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from micro_kernels import loop, recorded, timed

from mlagen.binary import load_code_object
from mlagen.errors import ConfigError, UnsupportedError
from mlagen.timing import CONSTANTS, Job, machine, simulate
from mlagen.timing.compare import RATIO_ERROR, compare
from mlagen.timing.corners import AXES, corners
from mlagen.timing.cycle_program import read_program
from mlagen.timing.events import events, parse_window
from mlagen.timing.fitted import NAMES
from mlagen.timing.loops import find_loop, flops_of
from mlagen.timing.model import ScheduleSource
from mlagen.timing.roles import hot_loops
from mlagen.timing.trace import write_page, write_trace
from mlagen.timing.unit import memory_share, residents
from mlagen.timing.whole import durations, makespan

MFMA = "  v_mfma_f32_32x32x16_bf16 v[{r}:{e}], v[100:103], v[104:107], v[{r}:{e}]"
WORK = "\n".join(MFMA.format(r=r, e=r + 15) for r in (0, 16))


def job(body: str, *, waves: int = 1, grid: int = 1, **options: object) -> Job:
    kernel, streams = recorded(body, waves=waves)
    return Job(kernel, streams, (grid, 1, 1), 0, **options)


def test_the_hot_loop_and_its_cycles() -> None:
    unit = timed(loop(WORK, 10))
    found = find_loop(unit.program.kernel, unit.waves[0])
    assert (len(found.starts), len(found.iteration), found.tiles) == (9, 5, 2)
    assert found.cycles(unit.waves[0].issued) == 64  # two matrix instructions hide the rest


def test_of_nested_loops_the_inner_one() -> None:
    inner = loop(WORK, 6).replace("s8", "s9").replace("head", "inner")
    unit = timed(loop(inner, 5))
    found = find_loop(unit.program.kernel, unit.waves[0])
    assert len(found.iteration) == 5
    assert found.head == 2


def test_an_unrolled_loop_has_as_many_tiles_as_alike_parts() -> None:
    part = WORK + "\n  ds_read_b32 v90, v91\n  s_barrier\n  v_exp_f32 v92, v93\n"
    other = part + "  v_exp_f32 v92, v93\n" * 12  # the parts differ: one tile of them
    kernel, (stream,) = recorded(loop(part * 2, 6), lds=256)
    assert hot_loops_of(kernel, stream).tiles == 2
    kernel, (stream,) = recorded(loop(part + other, 6), lds=256)
    assert hot_loops_of(kernel, stream).tiles == 1


def hot_loops_of(kernel, stream):  # type: ignore[no-untyped-def]
    from mlagen.timing.unit import time_unit

    return hot_loops(time_unit(stream, kernel, machine()), None)[0]


def test_without_a_loop_there_is_an_error_and_a_hint() -> None:
    with pytest.raises(UnsupportedError, match=r"no loop of 3 alike iterations") as caught:
        simulate(job(WORK), grid=False)
    assert "longer sequences" in str(caught.value.hint)


def test_operations_of_matrix_instructions() -> None:
    kernel, _ = recorded(
        "  v_mfma_f32_32x32x16_bf16 v[0:15], v[100:103], v[104:107], 0\n"
        "  v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[100:107], v[108:115], 0\n  v_nop"
    )
    assert [flops_of(ins) for ins in kernel.instructions] == [32768, 65536, 0, 0]


def test_a_report_adds_up() -> None:
    report = simulate(job(loop(WORK, 10), waves=4, grid=1), grid=False)
    (role,) = report.roles
    assert (role.waves, role.tiles, role.cycles, role.matrix) == ((0, 1, 2, 3), 2, 32.0, 1.0)
    assert report.matrix_utilisation == pytest.approx(1.0)
    assert sum(report.stalls.values()) == pytest.approx(1.0)
    assert report.estimate.flops == 4 * 20 * 32768
    e = report.estimate
    assert e.seconds.value == pytest.approx(e.cycles / (e.clock * 1e9) + 4e-6)
    assert e.bound_seconds == pytest.approx(e.cycles / (machine().max_clock * 1e9) + 4e-6)
    assert e.tflops.value == pytest.approx(e.flops / e.seconds.value / 1e12)


def test_every_stall_of_a_loop_is_told_once() -> None:
    report = simulate(job(loop("  v_add_f32 v1, v1, v1\n" * 4 + WORK, 10)), grid=False)
    (cluster,) = report.roles[0].clusters
    assert cluster.cycles == pytest.approx(cluster.issuing + sum(cluster.stalls.values()), rel=0.1)
    assert {line.reason for line in report.lines} <= set(report.stalls)
    lines = sum(line.cycles for line in report.lines)
    assert lines > 0 and "vector result" in {line.reason for line in report.lines}


def test_rounds_of_workgroups() -> None:
    on = machine().changed(dispatch=0)
    assert makespan([100.0] * 256, 1, on) == 100
    assert makespan([100.0] * 257, 1, on) == 200
    assert makespan([100.0] * 257, 2, on) == 100
    assert makespan([100.0] * 8 + [300.0] + [100.0] * 247, 1, on) == 300
    assert makespan([100.0] * 512, 1, machine().changed(dispatch=10)) == 220


def test_workgroups_that_were_not_simulated_take_what_the_nearest_takes() -> None:
    np.testing.assert_array_equal(durations({0: 1.0, 5: 2.0}, 7), [1, 1, 1, 2, 2, 2, 2])


def test_residents_by_lds_and_registers() -> None:
    kernel, _ = recorded(WORK)  # 128 registers: 4 waves a SIMD
    assert residents(kernel, 4, 0) == 4
    assert residents(kernel, 8, 65536) == 2
    assert residents(kernel, 8, 163840) == 1


def test_memory_is_the_hbms_unless_it_is_read_again() -> None:
    on = machine()
    assert memory_share(on, 1.0, 2.4) == pytest.approx(6500 / 2.4 / 256)
    assert memory_share(on, 1.0, 1.2) == pytest.approx(6500 / 1.2 / 256)
    assert memory_share(on, 100.0, 2.4) == on.l2_bytes


def test_the_grid_holds_every_combination_each_with_energies_of_its_own() -> None:
    grid = corners()
    assert len(grid) == 2 ** len(AXES) == len({corner.values for corner in grid})
    assert all(0.0 < corner.misfit < 0.2 for corner in grid)  # each was fitted
    for corner in grid:
        energies = dict(zip(NAMES, corner.energies, strict=True))
        assert min(energies.values()) >= 0.0
        assert energies["e_bf16"] > energies["e_f8"] > energies["e_f4"] > 0.0
        assert energies["e_lds"] <= machine().e_l2 <= machine().e_hbm
    base = dict(zip(AXES, (getattr(machine(), name) for name in AXES), strict=True))
    (own,) = [corner for corner in grid if dict(corner.values) == base]
    assert own.plausible and own.machine(machine()) == machine()
    assert 8 <= sum(corner.plausible for corner in grid) < len(grid)


def test_sensitivity_shows_what_a_kernel_hangs_on() -> None:
    """A loop of exp: twice the cycles with 16 each; nothing but exp and the clock matters."""
    report = simulate(job(loop("  v_exp_f32 v1, v2\n" * 30, 40)))
    cycles = {corner.name: corner.cycles for corner in report.corners}
    assert len(cycles) == 32
    fast = {c for name, c in cycles.items() if name.startswith("exp 8,")}
    slow = {c for name, c in cycles.items() if name.startswith("exp 16,")}
    assert len(fast) == len(slow) == 1
    dispatch = machine().dispatch
    assert (slow.pop() - dispatch) / (fast.pop() - dispatch) == pytest.approx(2.0, rel=0.1)
    e = report.estimate.seconds
    assert e.low < e.value < e.high


def test_a_gain_counts_when_all_corners_say_so() -> None:
    quick, slow = (job(loop("  v_add_f32 v1, v2, v3\n" * n, 400)) for n in (20, 60))
    found = compare(quick, slow)
    assert found.same_sign and found.counts and found.low > 1 + RATIO_ERROR
    back = compare(slow, quick)
    assert back.same_sign and back.counts and back.gain == pytest.approx(1 / found.gain)
    same = compare(quick, quick)
    assert not same.same_sign and not same.counts and same.gain == 1.0


def test_a_difference_that_hangs_on_exp_does_not_count() -> None:
    """40 exp of 8 cycles are quicker than 100 additions, of 16 they are not."""
    exps = job(loop("  v_exp_f32 v1, v2\n" * 40, 400))
    adds = job(loop("  v_add_f32 v1, v2, v3\n" * 100, 400))
    found = compare(exps, adds)
    assert found.low < 1 < found.high and not found.counts


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"exq": 8}, "unknown constant 'exq'"),
        ({"exp": 0}, "exp=0 is out of range"),
        ({"e_lds": -1}, "out of range"),
        ({"power_limit": 0}, "out of range"),
        ({"sustain": 1}, "unknown constant 'sustain'"),
    ],
)
def test_constants_that_cannot_be(values: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        machine().changed(**values)


def test_every_constant_has_a_range_around_its_value_and_a_source() -> None:
    for constant in CONSTANTS:
        assert constant.low <= constant.value <= constant.high, constant.name
        assert constant.source and constant.unit


def test_an_instruction_without_timing_is_refused_by_name() -> None:
    from gfx950_assembler import assemble

    body = "  v_smfmac_f32_16x16x64_bf16 v[0:3], v[4:7], v[8:15], v16\n  s_endpgm\n"
    kernel = load_code_object(assemble(body)).kernel()
    with pytest.raises(UnsupportedError, match=r"0x0: v_smfmac_f32_16x16x64_bf16.*no timing"):
        read_program(kernel, machine())


def test_an_assumed_timing_is_counted() -> None:
    kernel, _ = recorded(loop(WORK, 4))
    assert read_program(kernel, machine()).assumed == {}
    from gfx950_assembler import assemble

    body = "  v_fma_f64 v[0:1], v[2:3], v[4:5], v[6:7]\n" * 3 + "  s_endpgm\n"
    kernel = load_code_object(assemble(body)).kernel()
    assert read_program(kernel, machine()).assumed == {"v_fma_f64": 3}


def test_a_trace_has_every_instruction_and_a_page_is_whole(tmp_path: Path) -> None:
    unit = timed(loop(WORK, 10), waves=2)
    count = write_trace(unit, (0, unit.cycles), tmp_path / "t.json", None)
    trace = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    spans = [event for event in trace if event["ph"] == "X"]
    assert len(spans) == count == unit.instructions + 40  # the matrix units' own tracks
    matrix = [e for e in spans if e["name"].startswith("v_mfma") and e["dur"] == 32]
    assert len(matrix) == 40
    write_page(
        unit,
        (0, 500),
        tmp_path / "t.html",
        "a </script> b",
        lambda offset: ScheduleSource("x.py:1"),
    )
    page = (tmp_path / "t.html").read_text()
    assert "/*DATA*/" not in page and page.count("</script>") == 1
    assert "http" not in page and "x.py:1" in page


def test_a_trace_too_large_for_a_browser_is_refused_with_what_would_fit() -> None:
    unit = timed(loop(WORK, 50))
    with pytest.raises(ConfigError, match=r"hold 252 instructions.* at most 100") as caught:
        events(unit, (0, unit.cycles), 100)
    hint = str(caught.value.hint)
    assert len(events(unit, parse_window(hint.removeprefix("--window ")), 100)) > 0
    with pytest.raises(ConfigError, match="no FIRST:LAST"):
        parse_window("8:7")


def test_a_job_of_nothing_is_refused() -> None:
    made = job(loop(WORK, 10))
    with pytest.raises(ConfigError, match="no workgroup was recorded"):
        simulate(replace(made, streams=()))
