"""Advice that is followed makes no error: in our kernels, whose waits are made stricter first."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

pytest.importorskip("ziglang", reason="the assembler wheel (mlagen[amd]) is not installed")
pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")

from mlagen.app.texts import BuildTexts, build_from_text
from mlagen.audit.gfx950 import audit_kernel
from mlagen.binary import load_code_object
from mlagen.binary.text import waitcnt_fields
from mlagen.targets.gfx950.limits import GFX950

KERNELS = {
    "mha_prefill_v2": ("num_heads=8", "num_kv_heads=2", "mask=causal"),
    "mla_prefill_v2": ("num_heads=16", "num_kv_heads=16"),
    "mla_prefill_reduce": ("num_heads=16",),
    "mla_decode_gfx950": ("num_heads=16",),
    "mla_decode_merge_gfx950": ("num_heads=16",),
}
FULL = {"vmcnt": GFX950.vmcnt_max, "lgkmcnt": GFX950.lgkmcnt_max}


def asked(kernel, pc):
    """The counts of the s_waitcnt at a byte offset."""
    word = int.from_bytes(kernel.code[pc : pc + 4], "little")
    vm, _, lgkm = waitcnt_fields(word & 0xFFFF)
    return {"vmcnt": vm, "lgkmcnt": lgkm}


def with_wait(kernel, pc, **counts):
    """The kernel with other counts there (CDNA4 ISA guide, S_WAITCNT)."""
    now = {**asked(kernel, pc), **counts}
    vm, lgkm = now["vmcnt"], now["lgkmcnt"]
    word = 0xBF8C0070 | vm & 15 | lgkm << 8 | (vm >> 4) << 14
    code = kernel.code[:pc] + word.to_bytes(4, "little") + kernel.code[pc + 4 :]
    return replace(kernel, code=code)


def advised(needs):
    """`vmcnt(3) no lgkmcnt` as counts."""
    counts = {name: int(count) for name, count in re.findall(r"(\w+)\((\d+)\)", needs)}
    return counts | {name: FULL[name] for name in re.findall(r"no (\w+)", needs)}


@pytest.mark.parametrize("name", KERNELS)
def test_what_was_made_stricter_is_advised_back_and_no_further_than_is_right(name):
    artifact = build_from_text(name, BuildTexts(KERNELS[name]))
    kernel = load_code_object(artifact.code).kernel()
    plain = audit_kernel(kernel)
    assert not plain.errors
    for advice in plain.advice:  # each alone: two that cover the same need neither alone
        assert not audit_kernel(with_wait(kernel, advice.pc, **advised(advice.needs))).errors
    weak = [
        (wait.pc, counter)
        for wait in plain.waits
        for counter, count in (("vmcnt", wait.vmcnt), ("lgkmcnt", wait.lgkmcnt))
        if count
    ]
    for pc, counter in random.Random(name).sample(weak, min(1, len(weak))):
        strict = with_wait(kernel, pc, **{counter: 0})
        told = [one for one in audit_kernel(strict).advice if one.pc == pc]
        assert told, (hex(pc), counter)
        followed = with_wait(strict, pc, **advised(told[0].needs))
        assert asked(followed, pc)[counter] >= asked(kernel, pc)[counter]
        assert not audit_kernel(followed).errors
