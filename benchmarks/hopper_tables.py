"""The tables of Hopper's multifunction unit and the kept words, out of what hopper_words.py wrote.

    python benchmarks/hopper_tables.py OUT COMMIT

It needs no GPU. COMMIT is the one that measured. It fits each segment of each function, writes
`mlagen/emulator/ptx/arithmetic/mufu.json` and `tests/emulator_ptx/data/words.npz`, and fails where
no whole coefficients give every word of a segment.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from hopper_arithmetic.packing import packed, rough, unpacked  # noqa: E402

from mlagen.emulator.ptx.arithmetic.multifunction import (  # noqa: E402
    DATA,
    FRACTION,
    LOG_CUT,
    TANH_DROPPED,
    TANH_FIRST,
    squared,
)  # fmt: skip

KEPT = ROOT / "tests" / "emulator_ptx" / "data" / "words.npz"
TURN = np.float32(0.15915493667125702)
# How many low bits x has, and what c1 and c2 are shifted by: found by trying.
SHAPES = {
    "rcp": (16, 5, 14), "rsq0": (17, 4, 14), "rsq1": (17, 4, 14), "sqrt0": (17, 3, 15),
    "sqrt1": (17, 3, 15), "ex2": (17, 5, 14), "lg2": (17, 5, 14), "sin": (17, 5, 14),
    "tanh": (17, 4, 14),
}  # fmt: skip
KEPT_ROWS, KEPT_TILES, KEPT_SAMPLES = 6, 16, 1024
KEPT_BLOCKS = sorted(
    {*range(7, 65536, 1499), 0, 1, 0x7F, 0x80, 0x3F7F, 0x3F80, 0x7EFF, 0x7F00, 0x7F7F, 0x7F80,
     0x8000, 0x8080, 0xC2FC, 0xC2FD, 0xFF7F, 0xFF80}
)  # fmt: skip


class Words:
    """The arrays of a run."""

    def __init__(self, folder: Path) -> None:
        self.report = json.loads((folder / "report.json").read_text())
        self._files = [np.load(path) for path in sorted(folder.glob("words_*.npz"))]
        self.names = [name for found in self._files for name in found.files]

    def __getitem__(self, name: str) -> Any:
        return next(unpacked(found[name]) for found in self._files if name in found.files)

    def range(self, op: str, field: int) -> Any:
        return rough(self[f"range/{op}/{field}"]).astype(np.int64)


def bracket(words: Any, base: int, whole: bool = False) -> tuple[Any, Any]:
    """Where the unit's sum lies, from and below, in 2^-20 ulp of the field `base`. `whole`: it was
    cut to whole ulps before it was made a number."""
    shift = (words >> 23 & 255) - base + FRACTION
    mantissa = words & 0x7FFFFF | 1 << 23
    low = np.where(
        shift >= 0, mantissa << np.clip(shift, 0, 38), mantissa >> np.clip(-shift, 0, 62)
    )
    ulp = np.int64(1) << np.clip(shift, FRACTION if whole else 0, 38)
    return low, low + ulp


def roundest(low: int, high: int) -> int:
    """The number of [low, high) that ends in the most zeros."""
    for zeros in range(44, -1, -1):
        found = -(-low >> zeros) << zeros
        if found < high:
            return found
    raise ValueError("empty")


def fitted(shape: tuple[int, int, int], low: Any, high: Any, known: Any) -> tuple[int, int, int]:
    """c0, c1, c2 of one segment. SystemExit: there are none."""
    bits, c1_shift, c2_shift = shape
    x = np.arange(1 << bits, dtype=np.int64)
    square = squared(bits, x)
    columns = np.stack([np.ones(len(x)), x / len(x), square / len(x) ** 2], axis=1)[known]
    middle = ((low + high) / 2)[known]
    _, one, two = np.linalg.lstsq(columns, middle - middle.mean(), rcond=None)[0]
    first = round(one / len(x) / 2**c1_shift)
    second = round(two / len(x) ** 2 * 2**c2_shift)
    steps = (0, 1, -1, 2, -2)
    for c1, c2 in ((first + i, second + j) for j in steps for i in steps):
        rest = (c1 * x << c1_shift) + (c2 * square >> c2_shift)
        least, most = int((low - rest)[known].max()), int((high - rest)[known].min())
        if least < most:
            return roundest(least, most), c1, c2
    raise SystemExit("a segment has no whole coefficients")


def table(name: str, low: Any, high: Any, known: Any = None) -> dict[str, Any]:
    """All segments of a function."""
    shape = SHAPES[name]
    known = np.ones(len(low), bool) if known is None else known
    parts = [
        fitted(shape, low[at], high[at], known[at])
        for at in (slice(i, i + (1 << shape[0])) for i in range(0, len(low), 1 << shape[0]))
    ]
    c0, c1, c2 = (list(column) for column in zip(*parts, strict=True))
    return {
        "low": shape[0], "c1_shift": shape[1], "c2_shift": shape[2], "c0": c0, "c1": c1, "c2": c2
    }  # fmt: skip


def sine(words: Words) -> tuple[Any, Any, Any]:
    """The first quarter of the sine, by its 23 bits; and where it was measured."""
    found = np.zeros(1 << 23, np.int64)
    for field in range(113, 128):
        x = (np.arange(1 << 23, dtype=np.uint32) + np.uint32(field << 23)).view(np.float32)
        exact = x.astype(np.float64) * np.float64(TURN)
        place = np.floor(exact * 2.0**25).astype(np.int64)  # no shorter than the f32 product here
        inside = place < 1 << 23
        found[place[inside]] = words.range("sin.approx.ftz", field)[inside]
    low, high = bracket(found, 126)
    return low, high, found > 0


def all_tables(words: Words) -> dict[str, Any]:
    found = {}
    for name, op, field, base in (
        ("rcp", "rcp", 127, 126), ("rsq0", "rsqrt", 127, 126), ("rsq1", "rsqrt", 128, 126),
        ("sqrt0", "sqrt", 127, 127), ("sqrt1", "sqrt", 128, 127), ("ex2", "ex2", 127, 128),
    ):  # fmt: skip
        got = words.range(f"{op}.approx.ftz", field)
        known = np.arange(1 << 23) > 0 if name == "rsq0" else None
        found[name] = table(name, *bracket(got, base), known)
    got = words.range("lg2.approx.ftz", 127)
    low, high = bracket(got, 126)
    high = np.maximum(high, low + (1 << LOG_CUT))
    found["lg2"] = table("lg2", low, high, got > 0)
    found["sin"] = table("sin", *sine(words))
    parts = []
    for index, dropped in enumerate(TANH_DROPPED):
        field = TANH_FIRST + index
        got = words.range("tanh.approx", field)[:: 1 << dropped]
        parts.append(bracket(got, 126 if field >= 127 else field - 1, whole=True))
    lows, highs = (np.concatenate(column) for column in zip(*parts, strict=True))
    found["tanh"] = table("tanh", lows >> FRACTION << FRACTION, highs)
    return found


def keep(words: Words) -> dict[str, Any]:
    """What tests read, as arrays."""
    found = {}
    for name in words.names:
        kind, _, rest = name.partition("/")
        if kind == "tensor":
            found[name] = words[name][:KEPT_TILES, :KEPT_ROWS]
        elif kind == "sample":
            found[name] = words[name][:KEPT_SAMPLES]
        elif kind == "blocks" and len(words[name]) == 1 << 16:
            found[name] = words[name][KEPT_BLOCKS]
            found[f"fields/{rest}"] = words[name].reshape(512, -1).sum(axis=1, dtype=np.uint64)
        elif kind == "all":
            found[name] = head(hashlib.sha256(words[name].astype("<u2").tobytes()).hexdigest())
        elif kind == "range":
            data = rough(words[name]).astype("<u4").tobytes()
            found[name] = head(hashlib.sha256(data).hexdigest())
    for name, said in words.report["tensor"].items():
        for kind, digests in said.items():
            if isinstance(digests, list):
                found[f"digests/{name}/{kind}"] = np.concatenate([head(one) for one in digests])
    found["blocks"] = np.array(KEPT_BLOCKS, np.uint32)
    return found


def head(digest: str) -> Any:
    """The first 8 bytes of a digest."""
    return np.array([int(digest[:16], 16)], np.uint64)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("commit")
    options = parser.parse_args()
    words = Words(options.out)
    about = {
        "schema": "mlagen.emulator.mufu/1",
        "command": "python benchmarks/hopper_words.py OUT",
        "fitted": "python benchmarks/hopper_tables.py OUT COMMIT",
        "commit": options.commit,
        **{name: words.report[name] for name in ("device", "driver", "ptxas")},
    }
    lines = ",\n".join(
        f'"{name}": {json.dumps(found)}' for name, found in all_tables(words).items()
    )
    text = json.dumps(about, indent=1)[:-2] + ',\n "tables": {\n' + lines + "\n}}\n"
    json.loads(text)
    DATA.write_text(text)
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    kept = {name: packed(found) for name, found in keep(words).items()}
    kept["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(KEPT, **kept)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
