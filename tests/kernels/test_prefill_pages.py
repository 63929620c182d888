"""Pages anywhere in a pool of more than 4 GiB, and layouts that pages do not fit."""

import numpy as np
import pytest
from prefill_cases import Case, make_inputs, run

from mlagen.app.build import build_artifact
from mlagen.attention.prefill.gfx950.page_plan import split_rows
from mlagen.binary import load_code_object
from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.emulator import Argument, Buffer, Launch, emulate
from mlagen.errors import ConfigError, ScheduleError
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.problem.formats import scale_log2e
from mlagen.targets.gfx950.dsl import Reads, Subtiled
from mlagen.targets.gfx950.dsl.lds import Lds

POOLS = {"k": 5 << 44, "v": 6 << 44}  # addresses of the pools


@pytest.mark.parametrize("page_size", [16, 64, 128])
def test_page_offsets_have_64_bits(prefill, page_size):
    """The pools are as large as page numbers go: only the pages of the sequence exist, each a
    buffer of its own, and touching anything else is a finding."""
    kernel = prefill(num_heads=1, ragged=True, page_size=page_size)
    manifest = kernel.manifest
    config = MhaConfigV2.from_fields(manifest.problem)
    inputs = make_inputs(config, Case(((70, 40, 110),)))
    near = run(kernel, inputs)
    page_bytes = page_size * config.kv_row_stride * config.element_bytes
    pages = inputs.page_table[0]
    limit = 2**32 // page_bytes  # the first page past 4 GiB
    far = [limit - 1, limit, 3 * limit + 1, 2**31 - 1, 0, 2 * limit, 7]
    table = np.resize(np.array(far, np.int32), (1, len(pages)))
    output = np.full_like(near.output, np.nan)
    values = {
        "q": Buffer("q", inputs.q, "read"),
        "k": np.uint64(POOLS["k"]),
        "v": np.uint64(POOLS["v"]),
        "o": Buffer("o", output, "write"),
        "q_offsets": Buffer("q_offsets", inputs.q_offsets, "read"),
        "kv_lengths": Buffer("kv_lengths", inputs.kv_lengths, "read"),
        "start_positions": Buffer("start_positions", inputs.start_pos, "read"),
        "page_table": Buffer("page_table", table, "read"),
        "seq_len": np.uint32(inputs.seq_len),
        "batch": np.uint32(1),
        "max_pages": np.uint32(len(pages)),
        "scale_log2e": np.float32(scale_log2e(inputs.scale)),
    }
    arguments = []
    for name, pool in (("k", inputs.k), ("v", inputs.v)):
        for old, new in zip(pages, table[0], strict=True):
            page = np.ascontiguousarray(pool[old])
            place = Buffer(f"{name} {new}", page, "read", POOLS[name] + int(new) * page_bytes)
            arguments.append(Argument(0, place))  # makes it known; q's address overwrites it
    arguments += [Argument(arg.offset, values[arg.name]) for arg in manifest.args]
    launch = Launch((1, 1, 1), manifest.block, arguments, kernel=manifest.symbol)
    result = emulate(load_code_object(kernel.code), launch)
    assert not result.findings, result.findings[0]
    assert output.tobytes() == near.output.tobytes()


def test_a_layout_whose_instructions_span_pages_is_refused():
    lds = Lds(160 * 1024, 16)
    fragments = [lambda lane: (lane % 32, 16 * (lane // 32))]
    wide = lds.ring("K", layout=Subtiled(64, 128, 64, 16), slots=1, waves=8,
                    reads=Reads(fragments, 16))  # fmt: skip
    with pytest.raises(ScheduleError, match="rows of more than one page of 16 keys"):
        split_rows(wide.dma, 16, wide.name)


@pytest.mark.parametrize("page_size", [16, 32])
@pytest.mark.parametrize("depth", [64, 128])
def test_rows_of_each_instruction_lie_in_one_page(page_size, depth):
    schedule = schedule_of(
        load("mha_prefill_v2"),
        MhaConfigV2(num_heads=1, num_kv_heads=1, depth=depth, page_size=page_size),
        {},
    )
    for ring in schedule.lds.rings.values():
        lane_row, wave_row = split_rows(ring.dma, page_size, ring.name)
        for offset in ring.dma.row_offsets:
            for wave in range(8):
                rows = {ring.dma.row(wave << 6 | lane) + offset for lane in range(64)}
                assert len({row // page_size for row in rows}) == 1
                first = wave_row(wave << 6) + offset
                assert {first + lane_row(wave << 6 | lane) for lane in range(64)} == rows


def test_a_page_that_a_resource_cannot_describe_is_refused():
    config = MhaConfigV2(num_heads=128, num_kv_heads=128, page_size=2**17)
    with pytest.raises(ConfigError, match="a page of 4294967296 bytes"):
        build("mha_prefill_v2", config)


def test_a_page_that_outgrows_a_buffer_resource_is_refused_with_what_fits():
    """2^32 bytes, one more than a resource holds: a build, for the problem allows it."""
    fields = {"num_heads": 512, "num_kv_heads": 512, "dtype": "fp8_e4m3", "ragged": True}
    with pytest.raises(ConfigError, match="a page of 4294967296 bytes") as refused:
        build_artifact("mha_prefill_v2", fields | {"page_size": 65536}, {})
    assert refused.value.hint == "page_size is at most 65472"
