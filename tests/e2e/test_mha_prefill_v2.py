"""mha_prefill_v2, executed: right by both oracles, clean under the sanitizer, for every N.

One workgroup's worth of rows a head is enough for most of it: what differs from shape to shape is
the number of tiles, the tail of the last one, the head remap, and where the mask cuts.
"""

from pathlib import Path

import pytest

from mlagen.codegen import build
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.verify import verify

HEADS = [(1, 1), (4, 1), (8, 2), (6, 3)]
TAILS = [0, 1, 47]  # keys in the last tile; 0: it is full
KINDS = ["realistic", "randn", "late_max", "falling"]
SCHEDULES = Path(__file__).parents[1] / "codegen" / "schedules"


@pytest.fixture(scope="module")
def artifact():
    """Artifacts by config, built once."""
    made = {}

    def get(**fields):
        config = MhaConfigV2(**fields)
        if config not in made:
            made[config] = build("mha_prefill_v2", config)
        return made[config]

    return get


def check(artifact, **shape):
    report = verify(artifact, **shape)
    assert report.right, (shape, report.error())
    assert report.clean, (shape, [finding.render() for finding in report.findings])
    assert report.proved
    return report


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("n", range(1, 14))
@pytest.mark.parametrize("heads", HEADS, ids=lambda heads: "{}-{}".format(*heads))
def test_every_tile_count_null(artifact, heads, n, tail):
    num_keys = 64 * n if tail == 0 else 64 * (n - 1) + tail
    kernel = artifact(num_heads=heads[0], num_kv_heads=heads[1], mask="null")
    check(kernel, seq_len=70, num_keys=num_keys, data=KINDS[(n + tail) % 4], seed=n)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("n", range(1, 14))
@pytest.mark.parametrize("heads", HEADS, ids=lambda heads: "{}-{}".format(*heads))
def test_every_tile_count_causal(artifact, heads, n, tail):
    """Rows end where the keys do, so the last query tile walks all N tiles of its keys."""
    num_keys = 64 * n if tail == 0 else 64 * (n - 1) + tail
    seq_len = min(num_keys, 80)
    kernel = artifact(num_heads=heads[0], num_kv_heads=heads[1], mask="causal")
    check(
        kernel,
        seq_len=seq_len,
        num_keys=num_keys,
        start_pos=num_keys - seq_len,
        data=KINDS[(n + tail + 1) % 4],
        seed=n,
    )


@pytest.mark.parametrize("start_pos", [0, 1, 63, 64, 100])
def test_causal_at_any_start(artifact, start_pos):
    check(artifact(num_heads=4, num_kv_heads=2), seq_len=300, start_pos=start_pos)


@pytest.mark.parametrize("mask", ["null", "causal"])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_and_several_query_tiles(artifact, mask, kind):
    kernel = artifact(num_heads=4, num_kv_heads=2, mask=mask)
    check(kernel, batch=2, seq_len=513, num_keys=577, start_pos=64, data=kind, seed=3)


@pytest.mark.parametrize(
    "fields",
    [
        {"output_dtype": "fp32"},
        {"depth": 64},
        {"depth": 64, "mask": "null", "output_dtype": "fp32"},
        {"rescale_threshold": 0.0},
        {"rescale_threshold": 20.0},
    ],
    ids=str,
)
def test_other_problems(artifact, fields):
    check(artifact(num_heads=4, num_kv_heads=2, **fields), seq_len=333, data="late_max")


@pytest.mark.parametrize(
    "knobs",
    [
        {"k_slots": 3, "v_slots": 3},
        {"k_slots": 2, "v_slots": 2, "spare_slots": 0},
        {"spare_slots": 0},
        {"softmax": "grouped"},
        {"k_swizzle": "9-8 into 4-5"},
        {"qk_pattern": "6x1:3 10x1:5", "pv_pattern": "even", "pv_priority": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize("num_keys", [100, 700])
def test_every_knob_keeps_the_result(knobs, num_keys):
    config = MhaConfigV2(num_heads=2, num_kv_heads=1, mask="null")
    kernel = build("mha_prefill_v2", config, knobs=knobs)
    check(kernel, seq_len=64, num_keys=num_keys, data="late_max")


def test_random_completion_and_interleaving_change_no_bit(artifact):
    kernel = artifact(num_heads=1, num_kv_heads=1, mask="null")
    for seed in range(5):
        check(kernel, seq_len=256, num_keys=420, seed=seed, modes=("latest", "random"))


def test_rescale_runs_when_the_maximum_grows_and_not_when_it_falls(artifact):
    """v_pk_mul_f32 appears 32 times in the epilogue of a wave and 32 times in each rescale."""
    kernel = artifact(num_heads=1, num_kv_heads=1, mask="null")
    shape = {"seq_len": 256, "num_keys": 640}
    epilogue = 8 * 32
    late = check(kernel, data="late_max", **shape).runs[0].counts["v_pk_mul_f32"]
    falling = check(kernel, data="falling", **shape).runs[0].counts["v_pk_mul_f32"]
    jumps = check(kernel, data="jumps", **shape).runs[0].counts["v_pk_mul_f32"]
    most = 8 * (640 // 64 - 1)  # each wave at each tile but the first
    assert falling == epilogue
    for moved in (late, jumps):
        rescales, rest = divmod(moved - epilogue, 32)
        assert rest == 0 and 0 < rescales < most, (rescales, most)


def test_fully_visible_tiles_run_no_mask_code(artifact):
    """8 waves x 32 compares a masked tile; the last of 5 tiles alone is cut by num_keys."""
    kernel = artifact(num_heads=1, num_kv_heads=1, mask="null")
    full = check(kernel, seq_len=256, num_keys=320).runs[0].counts
    cut = check(kernel, seq_len=256, num_keys=300).runs[0].counts
    assert full.get("v_cmp_gt_i32", 0) == 0
    assert cut["v_cmp_gt_i32"] == 8 * 32


def test_executed_matrix_instructions_are_the_arithmetic(artifact):
    """16 for S and 16 for O a tile and wave; causal tiles beyond a query tile are not walked."""
    kernel = artifact(num_heads=1, num_kv_heads=1, mask="causal")
    counts = check(kernel, seq_len=512).runs[0].counts
    tiles = 256 // 64 + 512 // 64
    assert counts["v_mfma_f32_32x32x16_bf16"] == 8 * 32 * tiles


@pytest.mark.parametrize(
    ("name", "kinds", "both"),
    [
        ("no_dma_waits", {"missing-wait", "race-raw"}, ("read(K, i+1)", "copy(K, i+2)")),
        ("weak_wait", {"missing-wait", "race-raw"}, ("read(K, i+1)", "copy(K, i+2)")),
        ("late_key_read", {"race-raw", "race-war"}, ("read(K, i)", "copy(K, i+2)")),
    ],
)
def test_the_emulator_catches_what_the_proof_refuses(name, kinds, both):
    """The upstream races, made with the proof overridden: found by the sanitizer, at the
    schedule's lines, with both instructions, both waves and the clusters."""
    config = MhaConfigV2(num_heads=1, num_kv_heads=1, mask="null")
    broken = build(str(SCHEDULES / f"{name}.py"), config, allow_unproved=True)
    report = verify(broken, seq_len=256, num_keys=384)
    assert not report.passed and not report.proved
    found = [f for f in report.findings if f.kind in kinds]
    assert found and {f.kind for f in found} <= kinds
    texts = [f.render() for f in found]
    reading, copying = both
    assert any(reading in text and copying in text for text in texts), texts[0]
    for text in texts:
        assert f"schedules/{name}.py:" in text
        assert "cluster" in text and "wave" in text
        assert "ds_read" in text and "buffer_load_dwordx4" in text
    assert not report.runs[0].same_bits or not report.right or not report.runs[1].same_bits
