"""The GEMM example on gfx950, executed: right by both oracles, clean, proved, at every edge."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from gemm.problem import GemmConfig, GemmInputs
from gemm.verification import GemmKernel, gemm_inputs

from mlagen.binary import load_code_object
from mlagen.binary.effects import effects
from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of, templates_for
from mlagen.errors import CapacityError, ConfigError, ProofError
from mlagen.launch import EmulatedLauncher
from mlagen.targets.gfx950.codegen.build import generate
from mlagen.targets.gfx950.codegen.isa import SGPR
from mlagen.verify import verify, verify_inputs

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILE = EXAMPLES / "gemm_bf16.py"


@pytest.fixture(scope="module")
def artifact():
    """Artifacts by output type and knobs, built once."""
    made = {}

    def get(output_dtype="bf16", **knobs):
        key = output_dtype, *knobs.items()
        if key not in made:
            made[key] = build(str(FILE), GemmConfig(output_dtype=output_dtype), knobs=knobs)
        return made[key]

    return get


def check(built, **shape):
    report = verify(built, **shape)
    assert report.right, (shape, report.error())
    assert report.clean, (shape, [finding.render() for finding in report.findings])
    assert report.proved
    return report


# ---- right, clean, proved -----------------------------------------------------------------------


@pytest.mark.parametrize("tail", [0, 8, 40, 56])
@pytest.mark.parametrize("tiles", range(1, 9))
def test_every_tile_count_and_tail_of_k(artifact, tiles, tail):
    k = 64 * tiles if tail == 0 else 64 * (tiles - 1) + tail
    data = ["realistic", "randn", "late"][(tiles + tail) % 3]
    built = artifact(output_dtype=["bf16", "fp32"][tiles % 2])
    check(built, m=70, n=150, k=k, data=data, seed=tiles, modes=["latest", "earliest"])


@pytest.mark.parametrize("output_dtype", ["bf16", "fp32"])
@pytest.mark.parametrize(
    ("m", "n"),
    [(1, 1), (256, 256), (255, 257), (257, 7), (31, 264), (129, 8), (300, 500), (513, 12)],
)
def test_edges_of_m_and_n(artifact, m, n, output_dtype):
    """Blocks that stick out, N that allows wide stores and N that does not."""
    check(artifact(output_dtype=output_dtype), m=m, n=n, k=72, data="late", modes=["latest"])


@pytest.mark.parametrize("n_tile", [128, 256])
@pytest.mark.parametrize("m_tile", [128, 256])
def test_tile_sizes(artifact, m_tile, n_tile):
    built = artifact(m_tile=m_tile, n_tile=n_tile)
    assert built.manifest.resources.vgprs <= 256
    check(built, m=m_tile + 5, n=n_tile - 3, k=328, modes=["latest"])


@pytest.mark.parametrize(
    "knobs",
    [
        {"slots": 3},
        {"swizzle": "10-8 into 4-6"},
        {"swizzle": "none"},
        {"mma_order": "keep B", "dma_pattern": "4x1:3"},
        {"dma_pattern": "2x2:4", "mma_priority": 3},
    ],
    ids=str,
)
def test_knobs_keep_every_bit(artifact, knobs):
    """They move instructions and bytes; each accumulator still adds its terms in the same order."""
    inputs = gemm_inputs(GemmConfig(), m=130, n=250, k=456)
    built = build(str(FILE), GemmConfig(), knobs={"m_tile": 128, **knobs})
    assert built.manifest.proof.status == "proved"
    assert built.key != artifact(m_tile=128).key
    assert verify_inputs(built, inputs, modes=["random"], seed=3).passed
    usual, _ = GemmKernel(artifact(m_tile=128), EmulatedLauncher()).run(inputs)
    other, _ = GemmKernel(built, EmulatedLauncher(mode="earliest")).run(inputs)
    np.testing.assert_array_equal(usual.view(np.uint16), other.view(np.uint16))


def test_executed_work_is_what_the_shape_asks_for(artifact):
    run = check(artifact(), m=300, n=256, k=200).runs[0]
    # 2 blocks, 4 tiles, 8 waves, 32 MFMAs each: 8 accumulators of 32 x 32, 4 steps of 16.
    assert run.counts["v_mfma_f32_32x32x16_bf16"] == 2 * 4 * 8 * 32
    assert run.counts["ds_read_b128"] == 2 * 4 * 8 * 24
    assert run.counts["buffer_load_dwordx4"] == 2 * 4 * 8 * 8
    assert "buffer_store_short" not in run.counts


# ---- the tail of K, and rows that do not exist --------------------------------------------------


def unaffected(kernel: GemmKernel, a, b) -> np.ndarray:
    c, report = kernel.run(GemmInputs(kernel.config, a, b))
    assert not report.emulation.findings
    return c.astype(np.float32)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_no_row_leaks_into_another(artifact, bad):
    """What lies after a row's last element in memory is the next row, and must not be read."""
    kernel = GemmKernel(artifact(), EmulatedLauncher())
    inputs = gemm_inputs(kernel.config, m=40, n=48, k=72, data="randn")
    whole = unaffected(kernel, inputs.a, inputs.b)
    a, b = inputs.a.copy(), inputs.b.copy()
    a[17], b[30] = bad, bad
    c = unaffected(kernel, a, b)
    assert not np.isfinite(c[17]).any() and not np.isfinite(c[:, 30]).any()
    np.testing.assert_array_equal(
        np.delete(np.delete(c, 17, 0), 30, 1), np.delete(np.delete(whole, 17, 0), 30, 1)
    )


def test_an_unmasked_tail_is_found(tmp_path):
    """The same kernel without the select that keeps lanes out of the next row is wrong."""
    shipped = (EXAMPLES / "templates" / "gfx950" / "gemm" / "copy.s.j2").read_text()
    select = "v_cndmask_b32 {{ temp[0] }}, {{ temp[0] }}, {{ source }}, vcc"
    assert select in shipped
    wrong = tmp_path / "gfx950" / "gemm" / "copy.s.j2"
    wrong.parent.mkdir(parents=True)
    wrong.write_text(shipped.replace(select, "v_mov_b32 {{ temp[0] }}, {{ source }}"))
    built = build(str(FILE), GemmConfig(), templates_dir=tmp_path)
    report = verify(built, m=40, n=48, k=72, modes=["latest"])
    assert not report.right
    assert all(not c.passed for c in report.runs[0].comparisons)
    assert re.search(r"worst at row \d+, column \d+: ", str(report.error()))
    assert verify(built, m=40, n=48, k=128, modes=["latest"]).passed  # there is no tail here


# ---- the program --------------------------------------------------------------------------------


def test_lds_is_read_without_bank_conflicts():
    schedule = schedule_of(load(str(FILE), "gfx950"), GemmConfig(), {})
    for ring in schedule.lds.rings.values():
        assert ring.plan.cycles == ring.plan.ideal_cycles
    plain = schedule_of(load(str(FILE), "gfx950"), GemmConfig(), {"swizzle": "none"})
    assert all(ring.plan.cycles == 8 * ring.plan.ideal_cycles for ring in plain.lds.rings.values())


def test_each_wave_reads_its_own_part():
    rings = schedule_of(load(str(FILE), "gfx950"), GemmConfig(), {}).lds.rings
    for name, shares in (("A0", 2), ("A1", 2), ("B", 4)):
        ring, seen = rings[name], {}
        for wave in range(8):
            seen[wave] = {
                ring.layout.source(ring.plan.bases[base](64 * wave + lane) + offset)
                for base, offset in ring.plan.reads
                for lane in range(64)
            }
        parts = {frozenset(part) for part in seen.values()}
        assert len(parts) == shares
        assert sum(map(len, parts)) == ring.layout.size // 16


def test_waits_let_two_tiles_fly(artifact):
    lines = artifact().text.splitlines()
    start = next(i for i, line in enumerate(lines) if "==== loop" in line)
    end = next(i for i, line in enumerate(lines) if "==== drain" in line)
    waits = [int(n) for line in lines[start:end] for n in re.findall(r"vmcnt\((\d+)\)", line)]
    # 8 DMAs a tile: those of the tile after the one that is read next may all be in flight.
    assert waits == [8] * 4


def test_lines_lead_to_the_example(artifact):
    manifest = artifact().manifest
    assert manifest.schedule_file == "examples/gemm_bf16.py"
    assert manifest.problem_type == "GemmConfig"
    mma = [line for line in manifest.source if line.template == "gemm/mma.s.j2"]
    assert {line.cluster for line in mma} == {"mma 0", "mma 1"}
    schedule = FILE.read_text().splitlines()
    assert all("gemm.mma(i, " in schedule[line.schedule_line - 1] for line in mma)


def test_a_wait_that_is_too_weak_is_refused_and_seen_by_the_emulator(tmp_path):
    weak = tmp_path / "weak.py"
    text = FILE.read_text().replace('cluster("read 1")', 'cluster("read 1", wait=Wait(12, 0))')
    text = text.replace("Xor, cluster,", "Wait, Xor, cluster,")
    reading = next(n for n, line in enumerate(text.splitlines(), 1) if "read(B, i)" in line)
    weak.write_text(text.replace('"templates"', repr(str(EXAMPLES / "templates"))))
    with pytest.raises(ProofError, match=r"error\[wait-missing\].*weak\.py:\d+ cluster read 0"):
        build(str(weak), GemmConfig())
    built = build(str(weak), GemmConfig(), allow_unproved=True)
    report = verify(built, m=256, n=256, k=512, modes=["earliest"])
    assert not report.passed
    assert {finding.kind for finding in report.findings} == {"missing-wait", "race-raw"}
    for finding in report.findings:
        assert f"weak.py:{reading} cluster read 0, read(B, i)" in finding.render()
        assert "cluster read 1, copy(B, i+2)" in finding.render() or finding.kind != "race-raw"


def test_both_effect_tables_agree_on_the_example(artifact):
    """The generator's and the checkers', on the instructions that only this kernel uses too."""
    schedule = schedule_of(load(str(FILE), "gfx950"), GemmConfig(), {})
    layout = generate(schedule, templates_for("gfx950", EXAMPLES / "templates")).layout
    printed = []
    for segment in layout.segments:
        bodies = [segment.head, *(piece.body for piece in segment.pieces), segment.tail]
        printed += [x for body in bodies for x in body if x.pipe != "label"]
    (kernel,) = load_code_object(artifact().code).kernels.values()
    assert [x.mnemonic for x in printed] == [x.mnemonic for x in kernel.instructions]
    assert {"buffer_store_short", "v_mfma_f32_32x32x16_bf16"} <= {x.mnemonic for x in printed}
    for ours, theirs in zip(printed, kernel.instructions, strict=True):
        effect = effects(theirs, kernel.descriptor.accum_offset)
        for mine, accesses in ((ours.reads, effect.reads), (ours.writes, effect.writes)):
            vectors = {a.base + n for a in accesses if a.file == "v" for n in range(a.count)}
            assert {register for register in mine if register < SGPR} == vectors, ours.text


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": "fp8"}, r"dtype=fp8 is not supported\s+hint: dtype is bf16"),
        ({"output_dtype": "int8"}, "output_dtype is bf16 or fp32"),
        ({"type": 1}, "did you mean"),
    ],
)
def test_problems_that_cannot_be(fields, message):
    with pytest.raises(ConfigError, match=message):
        GemmConfig.from_fields(fields)


def test_fields_are_read_back():
    config = GemmConfig.from_fields({"output_dtype": "fp32"})
    assert config == GemmConfig(output_dtype="fp32")
    assert GemmConfig.from_fields(config.to_fields()) == config


@pytest.mark.parametrize(
    ("target", "tile", "choices"),
    [("gfx950", {"m_tile": 100}, "256, 128"), ("gfx950", {"n_tile": 512}, "256, 128"),
     ("gfx950", {"k_tile": 32}, "64"), ("sm_90a", {"m_tile": 256}, "128"),
     ("sm_90a", {"n_tile": "many"}, "256, 128")],
)  # fmt: skip
def test_tiles_that_cannot_be(target, tile, choices):
    with pytest.raises(ConfigError, match=rf"is not among its choices\s+hint: choices: {choices};"):
        build(str(FILE), GemmConfig(), target=target, knobs=tile)


def test_what_does_not_fit_names_what_ran_out():
    with pytest.raises(CapacityError, match=r"LDS ran out: ring 'B'.*196608 of 163840"):
        build(str(FILE), GemmConfig(), knobs={"slots": 3})


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"k": 100}, r"k=100 is not a multiple of 8.*\s+hint: k=96 or 104"),
        ({"k": 4}, "k=8; columns of zeros"),
        ({"k": 0}, "k=0 is not in 1"),
        ({"m": 0}, "m=0"),
        ({"n": 1 << 22}, "n=4194304 is not in"),
        ({"k": 1 << 23}, "k=8388608 is not in"),
        ({"data": "imaginary"}, "realistic, randn, late"),
    ],
)
def test_sizes_that_cannot_be_served(artifact, shape, message):
    with pytest.raises(ConfigError, match=message):
        verify(artifact(), **shape)


def test_operands_that_do_not_fit(artifact):
    config = artifact() and GemmConfig()
    good = gemm_inputs(config, m=16, n=24, k=32)
    for a, b, message in (
        (good.a.astype(np.float32), good.b, "a has dtype float32, not bf16"),
        (good.a, good.b[:, :16], r"b is not C-contiguous"),
        (good.a, good.b[:, :16].copy(), r"their K differ"),
        (good.a[0], good.b, "a is no two-dimensional"),
    ):
        with pytest.raises(ConfigError, match=message):
            GemmInputs(config, a, b)
    with pytest.raises(ConfigError, match="the inputs are those of"):
        GemmKernel(artifact(output_dtype="fp32"), EmulatedLauncher()).run(good)
