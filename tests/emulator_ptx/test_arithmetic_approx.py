"""The approximate functions against words that an H200 gave, and against the ISA's bounds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hopper_arithmetic.inputs import drawn, mixed
from hopper_arithmetic.promises import bounds_of
from kept_words import arrays, names

from mlagen.emulator.ptx.arithmetic import multifunction
from mlagen.emulator.ptx.arithmetic.approx import FUNCTIONS, approx, divided
from mlagen.errors import ConfigError

SAMPLES, OTHERS = (
    (drawn(stream, 0, 1024) >> np.uint64(32)).astype(np.uint32) for stream in (77, 78)
)
BLOCKS = names("blocks")


@pytest.mark.parametrize("opcode", names("sample"))
def test_samples(opcode: str) -> None:
    typed = f"{opcode}.f32"
    divides = opcode.startswith("div")
    found = divided(typed, SAMPLES, OTHERS) if divides else approx(typed, SAMPLES)
    assert (found == arrays()[f"sample/{opcode}"]).all()


@pytest.mark.parametrize("opcode", names("all"))
def test_all_inputs_of_16_bits(opcode: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint32)
    found = approx(opcode.removesuffix("x2"), every).astype("<u2")
    digest = hashlib.sha256(found.tobytes()).hexdigest()
    assert int(digest[:16], 16) == int(arrays()[f"all/{opcode}"][0])


def digest_of(block: int, opcode: str) -> int:
    """The chip's digest of 2^16 inputs: a sum over hashes of (input, output)."""
    inputs = np.arange(1 << 16, dtype=np.uint32) + np.uint32(block << 16)
    outputs = approx(f"{opcode}.f32", inputs)
    pairs = inputs.astype(np.uint64) << np.uint64(32) | outputs.astype(np.uint64)
    return int(mixed(pairs).sum(dtype=np.uint64))


@pytest.mark.parametrize("opcode", BLOCKS)
def test_blocks_of_65536_inputs(opcode: str) -> None:
    kept = arrays()
    wrong = [
        hex(int(block) << 16)
        for block, wanted in zip(kept["blocks"][::3], kept[f"blocks/{opcode}"][::3], strict=True)
        if digest_of(int(block), opcode) != int(wanted)
    ]
    assert not wrong


def test_another_coefficient_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = dict(multifunction.tables())
    moved = tables["ex2"].c2.copy()
    moved[0] += 1
    tables["ex2"] = replace(tables["ex2"], c2=moved)
    kept = arrays()
    place = kept["blocks"].tolist().index(0x3F80)  # 1.0 on: the first segment
    wanted = int(kept["blocks/ex2.approx.ftz"][place])
    assert digest_of(0x3F80, "ex2.approx.ftz") == wanted
    monkeypatch.setattr(multifunction, "tables", lambda: tables)
    assert digest_of(0x3F80, "ex2.approx.ftz") != wanted


TRUTHS: dict[str, tuple[Callable[..., np.ndarray], float, float]] = {
    "rcp.approx.f32": (np.reciprocal, 2.0**-120, 2.0**120),
    "rsqrt.approx.f32": (lambda x: 1 / np.sqrt(x), 2.0**-120, 2.0**120),
    "sqrt.approx.f32": (np.sqrt, 2.0**-120, 2.0**120),
    "ex2.approx.f32": (np.exp2, 2.0**-30, 120.0),
    "lg2.approx.f32": (np.log2, 2.0**-60, 2.0**60),
    "sin.approx.f32": (np.sin, 2.0**-30, 300.0),
    "cos.approx.f32": (np.cos, 2.0**-30, 300.0),
    "tanh.approx.f32": (np.tanh, 2.0**-30, 64.0),
}


@pytest.mark.parametrize("opcode", TRUTHS)
def test_the_promised_bounds_hold(opcode: str) -> None:
    function, low, high = TRUTHS[opcode]
    draws = drawn(5, 0, 1 << 16).astype(np.float64) / 2.0**64
    numbers = np.exp2(np.log2(low) + draws * np.log2(high / low)).astype(np.float32)
    found = approx(opcode, numbers.view(np.uint32)).view(np.float32).astype(np.float64)
    exact = numbers.astype(np.float64)
    truth = function(exact)
    error = np.abs(found - truth)
    for bound in bounds_of(opcode):
        inside = (exact >= bound.low) & (exact <= bound.high)
        assert inside.any()
        limit = bound.absolute or 0.0
        if bound.relative:
            limit = bound.relative * np.abs(truth)
        if bound.ulps:
            limit = (bound.ulps + 0.5) * np.spacing(np.abs(truth).astype(np.float32))
        assert (error <= limit)[inside].all()


def test_unknown_opcodes() -> None:
    for refused in (lambda: approx("ex3.approx.f32", SAMPLES), lambda: bounds_of("ex3.approx.f32"),
                    lambda: divided("div.rn.f32", SAMPLES, OTHERS)):  # fmt: skip
        with pytest.raises(ConfigError):
            refused()


def test_every_function_has_words() -> None:
    kept = {f"{name}.f32" for name in names("sample") if not name.startswith("div")}
    halves = {name.removesuffix("x2") for name in names("all")}
    assert set(FUNCTIONS) == kept | halves
