"""wgmma and mma.sync in the engine against arithmetic/dot.py and words that an H200 gave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hopper_arithmetic.inputs import INPUT_SETS, InputSet
from kept_words import arrays, names
from products import mma, results, wgmma
from running import kernel, run

from mlagen.emulator.ptx.arithmetic.dot import dot, dot_integer, rule_of
from mlagen.errors import UnsupportedError

SETS = {kinds.name: kinds for kinds in INPUT_SETS}
MIXED = [InputSet("e4m3", "e5m2", "f16", 21), InputSet("s8", "u8", "s32", 22),
         InputSet("u8", "u8", "s32", 23)]  # fmt: skip
ALL = [*INPUT_SETS, *MIXED]
CASES = [name.split("/") for name in names("tensor")]


def modelled(kinds: InputSet, kind: str, tiles: Any) -> np.ndarray:
    """What an instruction should give. `kind`: as in benchmarks/hopper_words.py."""
    a, b, c = tiles
    if kinds.integer:
        return dot_integer((kinds.a, kinds.b), a, b, c, saturate=kind == "saturated")
    rule = rule_of("mma" if kind in ("mma", "half") else "wgmma", kinds.a, kinds.c)
    return dot(rule, (kinds.a, kinds.b, kinds.c), a, b, None if kind == "no c" else c)


def executed(kinds: InputSet, kind: str, tiles: Any) -> np.ndarray:
    if kind in ("mma", "half") or (kind == "saturated" and kinds.integer):
        return results(mma(kinds, tiles[0].shape[-1], kind == "saturated"), kinds, tiles)
    return results(wgmma(kinds, kind), kinds, tiles)


def cut_to(kinds: InputSet, kind: str, tiles: Any) -> Any:
    k = kinds.k // 2 if kind == "half" else kinds.k
    a, b, c = tiles
    return a[..., :k], b[..., :k], c


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_words_of_a_chip(name: str, kind: str) -> None:
    kinds = SETS[name]
    words = arrays()[f"tensor/{name}/{kind}"]
    tiles = cut_to(kinds, kind, kinds.tiles(0, len(words)))
    found = executed(kinds, kind, tiles)
    assert (found[:, : words.shape[1]] == words).all()


@pytest.mark.parametrize("kind", ["shared", "registers", "no c", "mma", "half"])
@pytest.mark.parametrize("kinds", ALL, ids=lambda kinds: kinds.name)
def test_all_families_of_tiles(kinds: InputSet, kind: str) -> None:
    tiles = cut_to(kinds, kind, kinds.tiles(1000, 48))
    if kinds.integer and kind == "no c":
        return
    found, wanted = executed(kinds, kind, tiles), modelled(kinds, kind, tiles)
    assert (found == wanted).all(), np.argwhere(found != wanted)[:4]


@pytest.mark.parametrize("kinds", [k for k in ALL if k.integer], ids=lambda kinds: kinds.name)
def test_whole_numbers_held_at_the_ends(kinds: InputSet) -> None:
    tiles = kinds.tiles(7, 8)
    wanted = modelled(kinds, "saturated", tiles)
    assert (results(mma(kinds, 32, True), kinds, tiles) == wanted).all()
    assert (results(wgmma(kinds, "saturated"), kinds, tiles) == wanted).all()
    assert (wanted != modelled(kinds, "shared", tiles)).any()


@pytest.mark.parametrize("scale", [(-1, 1), (1, -1), (-1, -1)])
@pytest.mark.parametrize("kind", ["shared", "registers"])
def test_negated_operands(kind: str, scale: tuple[int, int]) -> None:
    kinds = SETS["f32.bf16.bf16"]
    a, b, c = kinds.tiles(5, 16)
    found = results(wgmma(kinds, kind, scale), kinds, (a, b, c))
    sign = np.uint32(0x8000 if scale[0] * scale[1] < 0 else 0)
    assert (found == modelled(kinds, kind, (a ^ sign, b, c))).all()


def near_power(rng: np.random.Generator, shape: Any, power: int) -> np.ndarray:
    """Words of bf16 within a few powers of two of one, down to denormals, with zeros among them."""
    field = np.clip(power + 127 + rng.integers(-6, 2, shape), 0, 254)
    word = rng.integers(0, 2, shape) << 15 | field << 7 | rng.integers(0, 128, shape)
    return np.where(rng.integers(0, 8, shape) == 0, 0, word).astype(np.uint32)


@pytest.mark.parametrize("total", [-240, -126, -96, -92, -90, -88, -84, 0, 104, 109, 111, 113, 126])
def test_sums_of_all_sizes(total: int) -> None:
    """Products and C near one power of two: some are cut in f32, some as whole numbers."""
    kinds = SETS["f32.bf16.bf16"]
    rng = np.random.default_rng(total + 999)
    one = max(min(total, 60), -60)
    a = near_power(rng, (6, 64, kinds.k), one)
    b = near_power(rng, (6, 8, kinds.k), total - one)
    c = near_power(rng, (6, 64, 8), max(min(total, 120), -120)) << 16
    a[1, :8] = 0  # whole rows, and whole columns
    b[2] = 0
    c[3] = 0
    tiles = (a, b, c)
    for kind in ("shared", "no c", "mma"):
        assert (executed(kinds, kind, tiles) == modelled(kinds, kind, tiles)).all()


def test_the_fast_level_is_near() -> None:
    kinds = SETS["f32.bf16.bf16"]
    tiles = (part[1:2] for part in kinds.tiles(0, 2))  # "narrow"
    tiles = tuple(tiles)
    found = results(wgmma(kinds, "shared"), kinds, tiles, exact=False).view(np.float32)
    exact = modelled(kinds, "shared", tiles).view(np.float32)
    scale = np.abs(exact).max()
    assert (np.abs(found - exact) < scale * 2.0**-18).all()
    assert (found != exact).any()


F64_SHAPES = {"m8n8k4": (8, 4), "m16n8k4": (16, 4), "m16n8k8": (16, 8), "m16n8k16": (16, 16)}


@pytest.mark.parametrize("shape", F64_SHAPES)
def test_f64(shape: str) -> None:
    rows, depth = F64_SHAPES[shape]
    rng = np.random.default_rng(depth + rows)
    a, b, c = (rng.integers(-99, 99, size).astype(np.float64) for size in
               ((rows, depth), (8, depth), (rows, 8)))  # fmt: skip
    lane = np.arange(32)
    many, others = rows * depth // 32, depth // 4
    halves = rows // 8
    a_lanes = np.stack([a[lane // 4 + 8 * (n % halves), lane % 4 + 4 * (n // halves)]
                        for n in range(many)], 1)  # fmt: skip
    b_lanes = np.stack([b[lane // 4, lane % 4 + 4 * n] for n in range(others)], 1)
    c_lanes = np.stack([c[lane // 4 + 8 * (n // 2), 2 * (lane % 4) + n % 2]
                        for n in range(2 * halves)], 1)  # fmt: skip
    d = np.zeros((32, 2 * halves))
    lines = ["mov.u32 %r1, %laneid;"]
    for number, (name, count) in enumerate(
        (("a", many), ("b", others), ("c", 2 * halves), ("d", 2 * halves))
    ):
        lines.append(f"ld.param.u64 %rd{number}, [{name}]; mul.wide.u32 %rd10, %r1, {8 * count};"
                     f"add.s64 %rd{number}, %rd{number}, %rd10;")  # fmt: skip
        if name != "d":
            lines += [f"ld.global.f64 %d{16 * number + n}, [%rd{number}+{8 * n}];"
                      for n in range(count)]  # fmt: skip
    a_, b_, c_ = (", ".join(f"%d{16 * number + n}" for n in range(count))
                  for number, count in enumerate((many, others, 2 * halves)))  # fmt: skip
    lines.append(f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64 "
                 f"{{{c_}}}, {{{a_}}}, {{{b_}}}, {{{c_}}};")  # fmt: skip
    lines += [f"st.global.f64 [%rd3+{8 * n}], %d{32 + n};" for n in range(2 * halves)]
    ran = run(kernel("\n".join([*lines, "ret;"]), "a, b, c, d"),
              {"a": a_lanes, "b": b_lanes, "c": c_lanes, "d": d})  # fmt: skip
    assert ran.ended and not ran.findings
    wanted = a @ b.T + c
    assert (d == np.stack([wanted[lane // 4 + 8 * (n // 2), 2 * (lane % 4) + n % 2]
                           for n in range(2 * halves)], 1)).all()  # fmt: skip


REFUSED = [
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%r0,%r1,%r2,%r3}, {%r4,%r5,%r6,%r7}, "
    "{%r8,%r9}, {%r0,%r1,%r2,%r3};",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc {%r0,%r1,%r2,%r3}, "
    "{%r4,%r5,%r6,%r7}, {%r8,%r9}, {%r0,%r1,%r2,%r3};",
    "mma.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3}, "
    "{%r4,%r5,%r6,%r7}, {%r8,%r9}, {%f0,%f1,%f2,%f3};",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.f16.f32 {%f0,%f1,%f2,%f3}, "
    "{%r4,%r5,%r6,%r7}, {%r8,%r9}, {%f0,%f1,%f2,%f3};",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%rd0,%rd1,%f2,%f3}, "
    "{%r4,%r5,%r6,%r7}, {%r8,%r9}, {%f0,%f1,%f2,%f3};",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,_}, "
    "{%r4,%r5,%r6,%r7}, {%r8,%r9}, {%f0,%f1,%f2,%f3};",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3}, "
    "{%r4,%r5}, {%r8}, {%f0,%f1,%f2,%f3};",
]


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_refused_names_its_line(line: str) -> None:
    with pytest.raises(UnsupportedError, match=r"line \d+: the emulator does not model mma"):
        run(kernel(line + " ret;"))
