"""Published kernels of MI355X whose matrix units' busy part was measured too.

TFLOP/s and the busy part together tell the clock: nothing of the cycle model is in it. `busy` is of
the whole kernel: in the loop, times the loop's share of the kernel's cycles.

All were timed under load, over more than a second. What a wave does beside its products is not
published; it is derived from the tile. A product's wave reads (m + n) rows of its own tile from the
LDS for m·n of the result, and its workgroup loads M + N for M·N (AITER's bf16gemm 256x256 and
f4gemm: the same, by their machine code). Attention of depth 128 reads 32 KB of the LDS a tile of 64
keys and wave and loads 4 KB; vector instructions by the schedule's own count of slots: 94 a tile,
64 more where O is rescaled every time, and 33 transcendental ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from mlagen.timing.activity import Activity
from mlagen.timing.power import Rates

# Operations a cycle of a compute unit with its matrix units busy (AMD), and bytes of an element.
PEAK: Final = {"bf16": 4096, "f16": 4096, "f8": 8192, "f4": 16384}
_BYTES: Final = {"bf16": 2.0, "f16": 2.0, "f8": 1.0, "f4": 0.5}
_TILE_OPS: Final = 32 * 32768  # of a wave: 32 rows, 64 keys, depth 128


@dataclass(frozen=True, slots=True)
class ClockPoint:
    """A kernel on a launch: `busy`, part of all cycles; `rates`, of a compute unit; `fits`: one of
    those to which the energies are fitted."""

    name: str
    launch: str
    source: str
    form: str
    busy: float
    tflops: float
    rates: Rates
    fits: bool

    @property
    def ops(self) -> float:
        """A cycle of a compute unit."""
        return PEAK[self.form] * self.busy

    def clock(self, cus: int) -> float:
        """GHz that the measurement means."""
        return self.tflops * 1e3 / (self.ops * cus)


class _Tile(NamedTuple):
    """Rows and columns of the result that a wave, and a workgroup, works on."""

    wave: tuple[int, int] = (128, 128)
    group: tuple[int, int] = (256, 256)


_TILE: Final = _Tile()


def _product(
    name: str,
    launch: str,
    source: str,
    form: str,
    busy: float,
    tflops: float,
    *,
    fits: bool,
    tile: _Tile = _TILE,
) -> ClockPoint:
    ops, size = PEAK[form] * busy, _BYTES[form]
    wave, group = tile
    loaded = ops * size * sum(group) / (2 * group[0] * group[1])
    read = ops * size * sum(wave) / (2 * wave[0] * wave[1])
    rates = Rates(replace(_matrix(form, ops), lds=read + loaded, l2=loaded))
    return ClockPoint(name, launch, source, form, busy, tflops, rates, fits)


def _attention(
    name: str, launch: str, form: str, busy: float, tflops: float, *, eager: bool, fits: bool
) -> ClockPoint:
    ops = PEAK[form] * busy
    tiles = ops / _TILE_OPS
    work = 94 + 2 * 33 + (64 if eager else 0)
    rates = Rates(
        replace(_matrix(form, ops), vector=work * tiles, lds=36864 * tiles, l2=4096 * tiles)
    )
    return ClockPoint(name, launch, _GLUON, form, busy, tflops, rates, fits)


def _matrix(form: str, ops: float) -> Activity:
    return replace(Activity(), **{form: ops})


# GroupGEMM: the tuning log of TheRealMichaelWang/GroupGEMM-CKTile-Optimized, October 2026, its
# counters, and amd-smi at the cap of 1400 W. Gluon: ROCm/gfx950-gluon-tutorials (its READMEs,
# `note.md` of kernels/attention, and its post on AMD's blog), instruction traces. 95 % of a
# product's cycles are in its loop; with the stock compiler the loops' share is taken to be that of
# the tuned kernels.
_LOG, _GLUON, _GROUPED, _MX = "GroupGEMM", "Gluon", "grouped product", "MX product"
_F16, _BF16, _LONG = "1 x 64 heads, 16320", "32 x 8 heads, 8192", "1 sequence, 16384"
_NARROW: Final = _Tile((64, 128))
_HIPBLASLT: Final = _Tile((128, 160), (256, 320))
CLOCKS: Final[tuple[ClockPoint, ...]] = (
    _product("HAND32", _GROUPED, _LOG, "bf16", 0.600, 1190, fits=True),
    _product("HAND32 scheduled", _GROUPED, _LOG, "bf16", 0.630, 1227, fits=False),
    _product("hipBLASLt", _GROUPED, _LOG, "bf16", 0.850, 1419, fits=True, tile=_HIPBLASLT),
    _product("hipBLASLt later", _GROUPED, _LOG, "bf16", 0.900, 1427, fits=False, tile=_HIPBLASLT),
    _product("ASMS", _GROUPED, _LOG, "bf16", 0.906, 1555, fits=True),
    _product("a16w16 v9", "product, K 8192", _GLUON, "f16", 0.9875 * 0.95, 1489, fits=True),
    _product("a8w8, e5m2", "product, K 16384", _GLUON, "f8", 0.9972 * 0.95, 3257, fits=True),
    _product("4 waves", _MX, _GLUON, "f4", 0.9241 * 0.95, 5255, fits=True),
    _product("8 waves v1", _MX, _GLUON, "f4", 0.81 * 0.95, 4845, fits=False, tile=_NARROW),
    _product("8 waves v2", _MX, _GLUON, "f4", 0.99 * 0.95, 4733, fits=False, tile=_NARROW),
    _attention("fav4", _F16, "f16", 0.951 * 0.951, 1245.5, eager=False, fits=True),
    _attention("fav3", _F16, "f16", 0.853 * 0.954, 1167.1, eager=True, fits=True),
    _attention("FlyDSL", _F16, "f16", 0.863 * 0.968, 1242.4, eager=False, fits=False),
    _attention("FlyDSL eager", _F16, "f16", 0.612 * 0.975, 1043.8, eager=True, fits=False),
    _attention("fav4", _BF16, "bf16", 0.945 * 0.8831, 1318, eager=False, fits=True),
    _attention("FlyDSL", _BF16, "bf16", 0.847 * 0.9413, 1320, eager=False, fits=True),
    _attention("fav3", _BF16, "bf16", 0.862 * 0.9052, 1243, eager=True, fits=True),
    _attention("fav4 stock", _BF16, "bf16", 0.685 * 0.8831, 1198, eager=False, fits=False),
    _attention("fav3 stock", _BF16, "bf16", 0.678 * 0.9052, 1141, eager=True, fits=False),
    _attention("fav4", _LONG, "bf16", 0.939 * 0.9407, 1296.5, eager=False, fits=False),
)  # fmt: skip
