"""Compares what two machines gave for bundles: a GPU and the emulator.

    python tests/compilers/compare_bits.py FOLDER ONE/bits.npz OTHER/bits.npz

FOLDER holds the bundles. Where bits are defined they must be equal, those of NaN among them. Where
a result passes through instructions without a defined last bit, or depends on the order of
atomics, both sides must lie within the bound around the reference, which the ISA's own bounds give;
how many elements differ, and the greatest distance in parts of that bound, is told. Ends with 1
where a case fails.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from judging import Bundle


def compared(
    bundle: Bundle, one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]
) -> tuple[bool, dict[str, Any]]:
    """Whether two sides of a case agree, and of each output: `differ`, elements whose bits do,
    and `distance`, the greatest in parts of the bound. KeyError for outputs that a side lacks."""
    good, found = True, {}
    for output in bundle.about["outputs"]:
        dtype, expected = bundle.buffers[output].dtype, bundle.expected(output)
        words = [side[f"{bundle.folder.name}/{output}"] for side in (one, other)]
        left, right = (array.view(dtype) for array in words)
        differ = int((words[0] != words[1]).sum())
        with np.errstate(all="ignore"):
            apart = np.abs(left.astype(np.float64) - right.astype(np.float64))
            distance = np.where(apart > 0, apart / expected.bound, 0.0)
        found[output] = {"differ": differ, "distance": float(np.nanmax(distance, initial=0))}
        if bundle.about["bits_defined"]:
            good = good and not differ
        else:
            good = good and not expected.misses(left) and not expected.misses(right)
    return good, found


def main(folder: Path, one: Path, other: Path) -> int:
    sides = [dict(np.load(path)) for path in (one, other)]
    names = sorted({key.split("/")[0] for side in sides for key in side})
    wrong, equal = [], 0
    for name in names:
        good, found = compared(Bundle.read(folder / name), *sides)
        differ = sum(output["differ"] for output in found.values())
        equal += differ == 0
        if not good:
            wrong.append(name)
        if differ or not good:
            print(name, "within bounds" if good else "FAILED", found)
    print(f"{len(names)} cases: {equal} of equal bits, {len(wrong)} failed", *wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*map(Path, sys.argv[1:])))
