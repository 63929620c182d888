"""What a decode kernel's variant says of its blocks is what its arguments say."""

from __future__ import annotations

import pytest

from mlagen.app.texts import BuildTexts, build_from_text
from mlagen.attention.latent.facts import facts_of

FP8 = ["dtype=fp8_e4m3", "cache_dtype=fp8_e4m3", "compute=fp8"]
FORMS = (
    ("mla_decode_sm90", ["num_heads=16"], []),
    ("mla_decode_sm90", ["num_heads=16", "cache_dtype=fp8_e4m3"], []),
    ("mla_decode_sm90", ["num_heads=16", *FP8], []),
    ("mla_decode_sm90", ["num_heads=64"], []),
    ("mla_decode_sm90", ["num_heads=64"], ["persistent=1"]),
    ("mla_decode_sm90", ["num_heads=64", *FP8], []),
    ("mla_decode_gfx950", ["num_heads=16"], ["persistent=1"]),
    ("mla_decode_gfx950", ["num_heads=128"], ["persistent=1", "arguments=aiter"]),
    ("mla_decode_gfx950", ["num_heads=16"], []),
    ("mla_sparse_decode_sm90", ["num_heads=16", "rows=v32"], []),
    ("mla_sparse_decode_sm90", ["num_heads=32", "rows=v32"], []),
    ("mla_sparse_decode_sm90", ["num_heads=64"], []),
    ("mla_sparse_prefill_sm90", ["num_heads=16"], []),
)


@pytest.mark.parametrize(("kernel", "fields", "knobs"), FORMS, ids=str)
def test_who_combines_and_what_a_block_takes(
    kernel: str, fields: list[str], knobs: list[str]
) -> None:
    manifest = build_from_text(kernel, BuildTexts(fields, knobs)).manifest
    facts, named = facts_of(manifest), {arg.name for arg in manifest.args}
    assert (facts.items == "several") == ("shares" in named)
    assert (facts.items == "aiter") == ("work_info_set" in named)
    assert (facts.combine == "fix_up") == ({"shares", "arrivals"} <= named)
    assert (facts.combine == "blocks") == ("arrivals" in named and "shares" not in named)
