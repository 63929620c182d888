"""Slots and phases where a pass of two tiles goes round a part of a ring of four."""

import pytest

from mlagen.codegen import build
from mlagen.errors import ProofError
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.nvidia.codegen import emit

FP8 = MlaDecodeConfig(16, dtype="fp8_e4m3", cache_dtype="fp8_e4m3", compute="fp8")


@pytest.mark.parametrize("what", ["slot", "phase"])
def test_a_cursor_that_starts_elsewhere_is_told(what, monkeypatch):
    def elsewhere(tile, depth):
        turn, slot = divmod(tile, depth)
        return (turn, (slot + 1) % depth) if what == "slot" else (turn + 1, slot)

    monkeypatch.setattr(emit, "divmod", elsewhere, raising=False)
    with pytest.raises(ProofError, match=rf"wrong-slot.* with {what} "):
        build("mla_decode_sm90", FP8, knobs={"variant": "seesaw_qkv_fp8"})
