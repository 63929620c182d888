"""The `.approx` functions in the engine against arithmetic/approx.py, word for word."""

from __future__ import annotations

import numpy as np
import pytest
from hopper_arithmetic.inputs import drawn
from kept_words import arrays, names
from running import kernel, run

from mlagen.emulator.ptx.arithmetic.approx import FUNCTIONS, approx, divided
from mlagen.errors import UnsupportedError

DRAWS = 1 << 14
DIVISIONS = ("div.approx.ftz.f32", "div.approx.f32", "div.full.ftz.f32", "div.full.f32")
WORDS = [name for name in sorted(FUNCTIONS) if name.endswith(".f32")]
HALVES = [name for name in sorted(FUNCTIONS) if not name.endswith(".f32")]


def words_of(stream: int, draws: int = DRAWS) -> np.ndarray:
    """f32 words: the begin, middle and end of each of 128 segments of a mantissa with every
    exponent and both signs, special ones, and `draws` random ones. A multiple of 256."""
    fields = np.arange(256, dtype=np.uint32)[:, None] << np.uint32(23)
    segments = (np.arange(128, dtype=np.uint32) << np.uint32(16))[None, :]
    inside = drawn(stream, 0, fields.size * 128).astype(np.uint32) & np.uint32(0xFFFF)
    begin = (fields | segments).reshape(-1)
    every = np.concatenate([begin, begin | inside, begin | np.uint32(0xFFFF)])
    every |= (drawn(stream + 1, 0, len(every)) >> np.uint64(63)).astype(np.uint32) << np.uint32(31)
    ends = np.array([0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000,
                     0x3F800000, 0x3F7FFFFF, 0x40800000, 0xC2FC0000, 0xC3160000, 0x43000000,
                     0x7E800000, 0x7E800001], np.uint32)  # fmt: skip
    ends = np.resize(np.concatenate([ends, ends | np.uint32(1 << 31)]), 256)
    random = (drawn(stream + 2, 0, draws) >> np.uint64(32)).astype(np.uint32)
    return np.concatenate([every, ends, random])


def executed(opcode: str, *sources: np.ndarray, exact: bool = True) -> np.ndarray:
    """Results of an opcode, as words; of 16 bits for a type of 16."""
    bits = 8 * sources[0].dtype.itemsize
    register = "%h" if bits == 16 else "%r"
    result = np.zeros_like(sources[0])
    lines = [f"mov.u32 %r50, %tid.x; mov.u32 %r51, %ctaid.x; mad.lo.u32 %r50, %r51, 256, %r50; "
             f"mul.wide.u32 %rd10, %r50, {bits // 8};"]  # fmt: skip
    for number, name in enumerate(["o", "a", "b"][: 1 + len(sources)]):
        lines.append(
            f"ld.param.u64 %rd{number}, [{name}]; add.s64 %rd{number}, %rd{number}, %rd10;"
        )
        if number:
            lines.append(f"ld.global.b{bits} {register}{number}, [%rd{number}];")
    given = ", ".join(f"{register}{1 + number}" for number in range(len(sources)))
    lines.append(f"{opcode} {register}0, {given}; st.global.b{bits} [%rd0], {register}0; ret;")
    parameters = ["o", "a", "b"][: 1 + len(sources)]
    ran = run(
        kernel("\n".join(lines), ", ".join(parameters)),
        dict(zip(parameters, (result, *sources), strict=True)),
        grid=(len(result) // 256, 1, 1), block=(256, 1, 1), exact=exact, sanitize=False,
    )  # fmt: skip
    assert ran.ended
    return result


def same(opcode: str, found: np.ndarray, wanted: np.ndarray, *sources: np.ndarray) -> None:
    wrong = np.flatnonzero(found != wanted)
    shown = [[hex(int(x[i])) for x in (*sources, found, wanted)] for i in wrong[:4]]
    assert not len(wrong), f"{opcode}: {len(wrong)} differ: {shown}"


@pytest.mark.parametrize("opcode", WORDS)
def test_f32(opcode: str) -> None:
    words = words_of(100)
    same(opcode, executed(opcode, words), approx(opcode, words), words)


@pytest.mark.parametrize("opcode", DIVISIONS)
def test_quotients(opcode: str) -> None:
    one, other = words_of(200), np.random.default_rng(3).permutation(words_of(300))
    same(opcode, executed(opcode, one, other), divided(opcode, one, other), one, other)


@pytest.mark.parametrize("opcode", HALVES)
def test_all_words_of_16_bits(opcode: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint32)
    wanted = approx(opcode, every).astype(np.uint16)
    same(opcode, executed(opcode, every.astype(np.uint16)), wanted, every)
    pairs = every | every[::-1] << np.uint32(16)
    both = wanted.astype(np.uint32)
    same(opcode, executed(f"{opcode}x2", pairs), both | both[::-1] << np.uint32(16), pairs)


@pytest.mark.parametrize("opcode", names("sample"))
def test_words_of_a_chip(opcode: str) -> None:
    draws = [(drawn(stream, 0, 1024) >> np.uint64(32)).astype(np.uint32) for stream in (77, 78)]
    sources = draws if opcode.startswith("div") else draws[:1]
    same(opcode, executed(f"{opcode}.f32", *sources), arrays()[f"sample/{opcode}"], *sources)


def test_the_fast_level_rounds_correctly() -> None:
    numbers = np.linspace(-20, 20, 4096, dtype=np.float32)
    words = numbers.view(np.uint32)
    found = executed("ex2.approx.ftz.f32", words, exact=False).view(np.float32)
    assert (found == np.exp2(numbers.astype(np.float64)).astype(np.float32)).all()
    assert (found.view(np.uint32) != approx("ex2.approx.ftz.f32", words)).any()


@pytest.mark.parametrize("opcode", ["tanh.approx.ftz.f32", "ex2.approx.ftz.f16"])
def test_opcodes_that_are_none(opcode: str) -> None:
    source = np.zeros(256, np.uint16 if opcode.endswith("16") else np.uint32)
    with pytest.raises(UnsupportedError, match="no operation"):
        executed(opcode, source)
