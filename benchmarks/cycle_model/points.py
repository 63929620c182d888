"""Published measurements of AITER's prefill kernels, and what the model says of each.

Sources: HipKittens' repository (MI355X, 500 warm-up and 100 measured runs); AITER pull requests
3390 (MI355X, reference and re-measured) and 4205; FlyDSL pull requests 629 and 711 (the latter on
MI350X at 2.2 GHz). AITER's objects change: `commit` is the one that brought the object which was
current when the measurement was published.
"""

from __future__ import annotations

from dataclasses import dataclass

from cycle_model.ladder import Shape


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement. `tflops`: what was published, several where it was measured again.
    `commit`: of AITER, that brought the object. `max_clock`, `watts`: of the chip, GHz and its
    power limit. `calibrates`: one of the three to which the energies are fitted, beside the kernels
    of `clocks`.
    """

    shape: Shape
    tflops: tuple[float, ...]
    source: str
    commit: str
    max_clock: float = 2.4
    calibrates: bool = False
    watts: float = 1400.0

    @property
    def measured(self) -> float:
        return sum(self.tflops) / len(self.tflops)


_AUTUMN, _SPRING = "f1fd879081", "f044c9f750"  # 2025-10-29, 2026-02-12
_LENGTHS = (1024, 2048, 4096, 8192, 16384)


def _hipkittens(
    kernel: str, heads: int, values: tuple[float, ...], calibrates: int = 0
) -> list[Point]:
    return [
        Point(Shape(kernel, 15 if heads == 64 and n == 16384 else 16, heads, n), (value,),
              "HipKittens", _AUTUMN, calibrates=n == calibrates)
        for n, value in zip(_LENGTHS, values, strict=True)
    ]  # fmt: skip


_BF16, _CAUSAL = "hd128_bf16", "hd128_bf16_causal"
_HD192, _HD192_CAUSAL = "hd192_hd128_bf16", "hd192_hd128_bf16_causal"
POINTS: tuple[Point, ...] = (
    *_hipkittens(_BF16, 64, (1032.5, 1152.4, 1231.2, 1281.3, 1291.3), 8192),
    *_hipkittens(_CAUSAL, 64, (715.1, 941.1, 1100.9, 1204.7, 1246.1)),
    *_hipkittens(_BF16, 16, (828.1, 1085.2, 1210.7, 1259.3, 1282.6)),
    *_hipkittens(_CAUSAL, 16, (554.6, 876.3, 1069.0, 1173.2, 1247.4)),
    Point(Shape(_BF16, 4, 64, 8192), (1371, 1390), "AITER 3390", _SPRING),
    Point(Shape(_CAUSAL, 4, 64, 8192), (1280, 1278), "AITER 3390", _SPRING),
    Point(Shape(_BF16, 1, 16, 16384), (1401, 1333), "AITER 3390", _SPRING),
    Point(Shape(_CAUSAL, 1, 16, 16384), (1324, 1231), "AITER 3390", _SPRING),
    Point(Shape(_HD192, 4, 64, 8192), (1281, 1378), "AITER 3390", _SPRING, calibrates=True),
    Point(Shape(_HD192_CAUSAL, 4, 64, 8192), (1259, 1298), "AITER 3390", _SPRING),
    Point(Shape(_HD192, 1, 16, 16384), (1343, 1348), "AITER 3390", _SPRING),
    Point(Shape(_HD192_CAUSAL, 1, 16, 16384), (1315, 1238), "AITER 3390", _SPRING),
    *(
        Point(Shape(_HD192_CAUSAL, 16384 // n, 16, n), (value,), "AITER 4205", "f1077c48c7")
        for n, value in zip((256, 512, 1024, 2048, 4096, 8192, 16384),
                            (245, 442, 665, 913, 1117, 1235, 1288), strict=True)
    ),
    Point(Shape(_CAUSAL, 8, 64, 256), (244.6,), "FlyDSL 629", _SPRING),
    Point(Shape(_CAUSAL, 8, 64, 512), (427.5,), "FlyDSL 629", _SPRING),
    Point(Shape("hd128_fp8", 16, 64, 8192), (1600, 1750), "FlyDSL 711", "3a5261496c", 2.2, True,
          1000.0),
)  # fmt: skip
