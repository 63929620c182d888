"""The generator's padding, read back from the machine code of a whole kernel on all its paths.

The instructions come from the binary decoder and are classified by `hazard_text`, so neither the
generator's instruction table nor its walk over the program is used: a wrong class or a forgotten
join shows as padding that is missing or not needed.
"""

from __future__ import annotations

import importlib.util

import pytest
from hazard_llvm import available
from hazard_text import parse

from mlagen.attention.masks import Mask
from mlagen.binary import MachineInstruction, load_code_object
from mlagen.codegen import build
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.gfx950.codegen.hazards import HazardInfo, HazardTracker

pytestmark = [
    pytest.mark.skipif(not available(), reason="no assembler: pip install 'mlagen[amd]'"),
    pytest.mark.skipif(
        importlib.util.find_spec("tinygrad") is None,
        reason="the decoder's tables are not installed (pip install 'mlagen[emulator]')",
    ),
]


def _nop(instruction: MachineInstruction) -> int:
    return instruction.modifier("simm16") + 1 if instruction.mnemonic == "s_nop" else 0


def _walk(
    program: list[tuple[MachineInstruction, HazardInfo | None]], arriving: dict[int, HazardTracker]
) -> tuple[bool, list[tuple[MachineInstruction, int, int]]]:
    """One pass in address order. `arriving`: what is owed at branch targets, tightened here.

    Returns whether it was, and (instruction, wait states given right before it, asked there).
    """
    changed = False
    padding = []
    tracker: HazardTracker | None = HazardTracker()
    waited = 0  # by s_nop since the last other instruction; not yet told to the tracker
    targets = {item.branch_target for item, _ in program} - {None}
    for item, info in program:
        if item.offset in targets:
            if tracker is not None:
                tracker.nop(waited)
                waited = 0
                if item.offset in arriving:
                    changed |= arriving[item.offset].merge(tracker)
                else:
                    arriving[item.offset] = tracker.copy()
                    changed = True
            known = arriving.get(item.offset)
            tracker = None if known is None else known.copy()
        if tracker is None:  # only reached by a branch that stands further down
            continue
        if info is None:
            waited += _nop(item)
            continue
        padding.append((item, waited, tracker.required(info)))
        tracker.nop(waited)
        waited = 0
        tracker.advance(info)
        if item.branch_target is not None:
            if item.branch_target in arriving:
                changed |= arriving[item.branch_target].merge(tracker)
            else:
                arriving[item.branch_target] = tracker.copy()
                changed = True
        if item.mnemonic in ("s_branch", "s_endpgm"):
            tracker = None
    return changed, padding


KERNELS = {
    "causal": ("mha_prefill_v2", MhaConfigV2(8, 2, mask=Mask.parse("causal"))),
    "null": ("mha_prefill_v2", MhaConfigV2(8, 2, mask=Mask.parse("null"))),
    "accumulation registers": ("mla_decode_gfx950", MlaDecodeConfig(128)),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_padding_is_exactly_what_every_path_needs(kernel: str) -> None:
    name, config = KERNELS[kernel]
    artifact = build(name, config)
    code = load_code_object(artifact.code).kernels[artifact.manifest.symbol]
    program = [(item, None if _nop(item) else parse(str(item))) for item in code.instructions]
    arriving: dict[int, HazardTracker] = {}
    for _ in range(10):
        changed, padding = _walk(program, arriving)
        if not changed:
            break
    else:
        pytest.fail("the walk does not settle")
    assert len(padding) == sum(info is not None for _, info in program)
    wrong = [
        f"+{item.offset:#x} {item}: {given} given, {asked} needed"
        for item, given, asked in padding
        if given != asked
    ]
    assert not wrong, "\n".join(wrong)
    assert sum(given for _, given, _ in padding) > 0
