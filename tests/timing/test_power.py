"""What is counted, the clock that a power limit allows, and the fit of the energies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cycle_model.clocks import CLOCKS
from cycle_model.energies import Observed, fit_energies
from gfx950_assembler import assemble
from micro_kernels import POINTER, loop, recorded

from mlagen.binary import load_code_object
from mlagen.timing import Job, machine, simulate
from mlagen.timing.activity import Activity, activity_of, format_of
from mlagen.timing.fitted import NAMES
from mlagen.timing.power import Rates, clock_of, watts
from mlagen.timing.simulate import sustained, time_job

MFMA = "  v_mfma_f32_32x32x16_bf16 v[{r}:{e}], v[100:103], v[104:107], v[{r}:{e}]"
DENSE = "\n".join(MFMA.format(r=r, e=r + 15) for r in (0, 16, 32, 48))


def counted(body: str, **options: int) -> Activity:
    kernel, (stream,) = recorded(body, **options)
    return activity_of(stream, kernel)


@pytest.mark.parametrize(
    ("instruction", "found"),
    [
        ("v_mfma_f32_32x32x16_bf16 v[0:15], v[100:103], v[104:107], 0", {"bf16": 32768}),
        ("v_mfma_f32_32x32x16_f16 v[0:15], v[100:103], v[104:107], 0", {"f16": 32768}),
        ("v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[100:107], v[108:115], 0", {"f8": 131072}),
        ("v_add_f32 v1, v2, v3", {"vector": 1}),
        ("v_pk_add_f32 v[0:1], v[2:3], v[4:5]", {"vector": 2}),
        ("v_exp_f32 v1, v2", {"vector": 2}),
        ("s_nop 0", {}),
    ],
)  # fmt: skip
def test_what_an_instruction_counts_as(instruction: str, found: dict[str, float]) -> None:
    assert counted(f"  {instruction}") == replace(Activity(), **found)


def test_only_products_of_two_4_bit_operands_count_as_such() -> None:
    words = "  v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[100:{a}], v[108:{b}], 0 {formats}\n"
    body = words.format(a=103, b=111, formats="cbsz:4 blgp:4")
    body += words.format(a=107, b=111, formats="blgp:4")
    kernel = load_code_object(assemble(body + "  s_endpgm\n", vgprs=128)).kernel()
    assert [format_of(ins) for ins in kernel.instructions[:2]] == ["f4", "f8"]


def test_bytes_of_lds_reads_are_those_of_all_lanes() -> None:
    body = "  v_mov_b32 v90, 0\n  ds_read_b32 v91, v90\n  ds_read2_b64 v[92:95], v90 offset1:1\n"
    done = counted(body + "  s_waitcnt lgkmcnt(0)", lds=256)
    assert done.lds == 64 * (4 + 16) and done.l2 == 0


def test_loads_count_beyond_the_unit_and_those_to_lds_there_too() -> None:
    body = POINTER + "  v_lshlrev_b32 v1, 4, v0\n  s_mov_b32 m0, 0\n  s_nop 0\n"
    body += "  global_load_dwordx4 v[4:7], v1, s[4:5]\n  global_load_lds_dword v1, s[4:5]\n"
    body += "  s_waitcnt vmcnt(0)\n  global_store_dword v1, v4, s[4:5]\n  s_waitcnt vmcnt(0)"
    done = counted(body, lds=256)
    assert (done.l2, done.lds, done.hbm) == (64 * (16 + 4 + 4), 64 * 4, 0)


def test_the_clock_takes_the_power_that_is_there() -> None:
    on = machine()
    for busy in (0.6, 0.8, 1.0):
        rates = Rates(Activity(bf16=4096 * busy, lds=96 * busy))
        clock = clock_of(rates, on)
        assert clock < on.max_clock
        assert watts(rates, clock, on) == pytest.approx(on.power_limit)
    assert clock_of(Rates(Activity()), on) == on.max_clock
    assert watts(Rates(Activity()), 2.4, on) < on.power_limit
    assert clock_of(rates, on.changed(power_limit=1000)) < clock
    nothing_left = clock_of(rates, on.changed(power_limit=on.idle_power))
    assert nothing_left == 0.8  # half of the reference: no clock of zero, no division by it


def test_more_of_anything_never_speeds_the_clock_up() -> None:
    on, base = machine(), Rates(Activity(bf16=3000, lds=100, vector=0.5))
    for name in ("bf16", "f16", "f8", "f4", "vector", "lds", "l2", "hbm"):
        more = replace(base.each, **{name: getattr(base.each, name) + 100})
        assert clock_of(Rates(more), on) <= clock_of(base, on), name


def test_energies_are_found_again_from_the_clocks_that_they_give() -> None:
    wanted = dict(zip(NAMES, (300, 0.5, 0.6, 0.25, 0.15, 400, 3.0), strict=True))
    on = machine().changed(**wanted)
    seen = [Observed(p.rates, clock_of(p.rates, on), on) for p in CLOCKS]
    assert all(each.clock < on.max_clock for each in seen)
    assert fit_energies(seen, on) == pytest.approx(wanted, rel=1e-6)


def test_no_energy_below_zero_and_no_byte_of_lds_above_one_of_the_l2() -> None:
    """Clocks that would ask for more than that are explained as well as the bounds allow."""
    wanted = dict(zip(NAMES, (0, 0.3, 0.3, 0.15, 0.1, 0, 20.0), strict=True))
    on = machine().changed(**wanted)
    seen = [Observed(p.rates, clock_of(p.rates, on), on) for p in CLOCKS]
    found = fit_energies(seen, on)
    assert found["e_lds"] == on.e_l2 and min(found.values()) >= 0


def test_a_dense_loop_is_slowed_down_and_a_sparse_one_is_not() -> None:
    def report(body: str):  # type: ignore[no-untyped-def]
        kernel, streams = recorded(loop(body, 60), waves=8)
        return simulate(Job(kernel, streams, (256, 1, 1), 0), on, grid=False).estimate

    on = machine().changed(dispatch=0, launch=0)
    dense, sparse = report(DENSE), report(DENSE + "\n  s_nop 15" * 4)
    assert dense.clock < 1.8 < sparse.clock
    assert dense.bound_tflops / sparse.bound_tflops > 1.2 * dense.tflops.value / sparse.tflops.value
    idle = report(MFMA.format(r=0, e=15) + "\n  s_nop 15" * 40)
    assert idle.clock == machine().max_clock and idle.watts < 1400
    assert idle.seconds.value == idle.bound_seconds


def test_a_launch_that_the_memory_limits_settles() -> None:
    """Cycles of a slower clock bring more bytes; clock and cycles have to agree."""
    body = DENSE + "\n  global_load_dwordx4 v[92:95], v96, s[4:5]\n  s_waitcnt vmcnt(0)"
    setup = POINTER + "  v_lshlrev_b32 v96, 4, v0\n"
    kernel, streams = recorded(setup + loop(body, 30), waves=8)
    job = Job(kernel, streams, (256, 1, 1), 0, footprint=256 * 8 * 30 * 1024)
    on = machine().changed(dispatch=0, power_limit=700)
    timed = sustained(job, on)
    assert timed.clock == pytest.approx(clock_of(timed.rates, on), rel=0.01)
    assert timed.cycles == pytest.approx(time_job(job, on, timed.clock).cycles, rel=0.01)
