"""`lds_dma_wait=drain`: no wait counts on the order in which copies to LDS end. By default texts
are what they were."""

from __future__ import annotations

import importlib.util
import re

import pytest

from mlagen.binary import load_code_object
from mlagen.binary.effects import is_lds_dma
from mlagen.binary.flow import read_flow
from mlagen.binary.text import waitcnt_fields
from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_prefill.problem import MlaConfigV2

DRAIN = {"lds_dma_wait": "drain"}
CASES = {
    "mha": ("mha_prefill_v2", MhaConfigV2(2, 1), {}),
    "mha, pages": ("mha_prefill_v2", MhaConfigV2(2, 1, page_size=16, ragged=True), {}),
    "mha, e4m3": ("mha_prefill_v2", MhaConfigV2(2, 1, dtype="fp8_e4m3"), {}),
    "mla": ("mla_prefill_v2", MlaConfigV2(2, 1), {}),
    "decode": ("mla_decode_gfx950", MlaDecodeConfig(16), {}),
    "decode, wide": ("mla_decode_gfx950", MlaDecodeConfig(128), {}),
    "decode, items": ("mla_decode_gfx950", MlaDecodeConfig(16), {"persistent": 1}),
}


@pytest.fixture(scope="module", params=CASES)
def pair(request):
    """The artifact by default, and the one that drains."""
    name, config, knobs = CASES[request.param]
    return build(name, config, knobs=knobs), build(name, config, knobs={**knobs, **DRAIN})


def counted_behind_a_copy(code):
    """Waits for some vmcnt between 0 and 63 that a copy to LDS reaches on some path, before any
    vmcnt(0): read from the machine code by the checkers' decoder and control flow."""
    (kernel,) = load_code_object(code).kernels.values()
    instructions = kernel.instructions
    flow = read_flow(instructions)
    open_at = dict.fromkeys(range(len(flow.blocks)), False)
    found, work, seen = set(), [0], set()
    while work:
        block = flow.blocks[work.pop()]
        state = open_at[block.index]
        seen.add(block.index)
        for at in range(block.first, block.last + 1):
            ins = instructions[at]
            if is_lds_dma(ins):
                state = True
            elif ins.mnemonic == "s_waitcnt":
                vm = waitcnt_fields(ins.modifier("simm16"))[0]
                if state and 0 < vm < 63:
                    found.add(at)
                state = state and vm != 0
        for after in block.successors:
            if (state and not open_at[after]) or after not in seen:
                open_at[after] |= state
                work.append(after)
    return found


def test_by_default_nothing_is_told_and_waits_count(pair):
    default, _ = pair
    assert "lds_dma_wait" not in default.text
    assert "lds_dma_wait" not in default.manifest.knobs
    # The check sees what it looks for; MLA prefill waits for all copies anyway.
    name = default.manifest.kernel
    assert bool(counted_behind_a_copy(default.code)) == (name != "mla_prefill_v2")


def test_where_it_drains_no_wait_relies_on_the_order_of_copies(pair):
    _, drained = pair
    assert drained.manifest.knobs["lds_dma_wait"] == "drain"
    assert drained.manifest.proof.status == "proved"
    assert not counted_behind_a_copy(drained.code)


def test_the_default_said_aloud_is_the_default():
    problem = MhaConfigV2(2, 1)
    said = build("mha_prefill_v2", problem, knobs={"lds_dma_wait": "counted"})
    assert said.text == build("mha_prefill_v2", problem).text


def test_every_schedule_of_gfx950_has_the_setting():
    names = ["mha_prefill_v2", "mla_prefill_v2", "mla_prefill_reduce", "mla_decode_gfx950",
             "mla_decode_merge_gfx950", "mla_sparse_decode_gfx950",
             "mla_sparse_prefill_gfx950"]  # fmt: skip
    from mlagen.problem.fields import example_of

    for name in names:
        function = load(name)
        declared = schedule_of(function, example_of(function.problem_type), {}).declared
        assert declared["lds_dma_wait"].choices == ("counted", "drain"), name
        assert declared["lds_dma_wait"].setting
    with pytest.raises(ConfigError, match="lds_dma_wait='none' is not among its choices"):
        schedule_of(load("mla_prefill_reduce"), example_of(load("mla_prefill_reduce").problem_type),
                                         {"lds_dma_wait": "none"})  # fmt: skip


def test_a_wait_placed_by_hand_drains_too(tmp_path):
    from pathlib import Path

    shipped = Path(load("mha_prefill_v2").path).read_text()
    text = shipped.replace('with cluster("B"):', 'with cluster("B", wait=Wait(vm=8)):')
    text = text.replace("targets.gfx950.dsl import ", "targets.gfx950.dsl import Wait, ", 1)
    assert text.count("wait=Wait(vm=8)") == 1
    (tmp_path / "mine.py").write_text(text)
    config = MhaConfigV2(2, 1)
    assert "vmcnt(8)" in build(str(tmp_path / "mine.py"), config).text
    drained = build(str(tmp_path / "mine.py"), config, knobs=DRAIN)
    assert set(re.findall(r"s_waitcnt vmcnt\((\d+)\)", drained.text)) == {"0"}


@pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="no emulator (pip install 'mlagen[emulator]')"
)
@pytest.mark.parametrize("case", ["mha", "decode"])
def test_it_is_right_and_clean(case):
    """Emulated, with the sanitizer, copies ending as late and as early as they may."""
    from mlagen.verify import verify

    name, config, knobs = CASES[case]
    sizes = {"mha": {"seq_len": 70, "num_keys": 200}, "decode": {"max_length": 150}}[case]
    artifact = build(name, config, knobs={**knobs, **DRAIN})
    report = verify(artifact, modes=["latest", "earliest"], **sizes)
    assert report.right, report.error()
    assert report.clean, [finding.render() for finding in report.findings]
