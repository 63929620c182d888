"""MLA decode of ours beside AITER's objects on an MI355X: predicted times of whole calls.

    python benchmarks/mla_decode_vs_aiter.py --aiter FOLDER [--heads 16 32 64 128] [--page 1]
        [--batch 1 8 128] [--keys 4096 ... 131072] [--formats bf16 e4m3 fp8] [--no-corners] [--json]

FOLDER holds `mla/` with AITER's gfx950 objects. Times are the cycle model's (docs/timing.md), in
every plausible corner of its grid times three rates of the HBM: nothing of it was measured. Of what
AITER has for a call, and of the ways of both to cut sequences, the fastest is compared.
`mla_decode_arrays.py` has both on the same arrays.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

SCHEMA = "mlagen.benchmark.mla_decode_vs_aiter/1"
KERNEL = "mla_decode_gfx950"
LENGTHS = (1024, 2048)  # keys of the two runs of ours
HBM = (0.95, 1.0, 1.05)  # of the constant
E4M3 = {"dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3"}
# fp8: products of e4m3, which AITER's kernels of e4m3 have as well.
FORMATS = {"bf16": {}, "e4m3": E4M3, "fp8": {**E4M3, "compute": "fp8"}}
# What AITER's launcher takes for one new token: persistent first, then one split a workgroup.
THEIRS = {
    ("bf16", 16): ("mla_a16w16_qh64_qseqlen1_gqaratio64_v3_ps",
                   "mla_dec_stage1_bf16_a16w16_subQ16_mqa16"),
    ("bf16", 32): ("mla_a16w16_qh64_qseqlen1_gqaratio64_v3_ps",),
    ("bf16", 64): ("mla_a16w16_qh64_qseqlen1_gqaratio64_v3_ps",
                   "mla_a16w16_qh64_qseqlen1_gqaratio64_v3"),
    ("bf16", 128): ("mla_a16w16_qh32_qseqlen4_gqaratio32_ps",
                    "mla_dec_stage1_bf16_a16w16_subQ128_mqa128"),
    ("e4m3", 16): ("mla_a8w8_qh16_qseqlen1_gqaratio16_ps",),
    ("e4m3", 32): ("mla_a8w8_qh32_qseqlen1_gqaratio32_ps",),
    ("e4m3", 64): ("mla_a8w8_qh16_qseqlen4_gqaratio16_v3_ps",),
    ("e4m3", 128): ("mla_a8w8_qh32_qseqlen4_gqaratio32_ps",),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Side:
    """A kernel and its ways to distribute a call: each makes groups of lengths."""

    name: str
    kernel: Any
    ways: tuple[Any, ...]


@dataclass(frozen=True)
class Row:
    """A call. Microseconds at the table's constants; `rate`: the keys' bytes over ours' time, as a
    part of what the HBM is taken to achieve; `gain`: theirs / ours, `low` and `high` over corners,
    and the corner of `low`."""

    form: str
    heads: int
    batch: int
    keys: int
    ours: float
    rate: float
    theirs: float | None = None
    their_kernel: str = ""
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    worst: str = ""
    missing: str = field(default="", compare=False)


def of_ours(form: str, heads: int, page: int) -> Side:
    """Our kernel, built and recorded at two lengths. ConfigError, UnsupportedError for what it
    does not do."""
    from cycle_model.decode import DecodeKernel, Part

    from mlagen.app.build import build_artifact
    from mlagen.app.cycle_jobs import job_of_artifact
    from mlagen.families.mla_decode.plan import plan_work
    from mlagen.families.mla_decode.problem import TILE, MlaDecodeConfig
    from mlagen.families.mla_decode.unit import unit_of

    fields = {"num_heads": heads, "page_size": page, **FORMATS[form]}
    artifact = build_artifact(KERNEL, fields, {})
    jobs = {
        n: job_of_artifact(artifact, {"lengths": [n]}, groups=[(0, 0, 0)], tiles=None)
        for n in LENGTHS
    }
    unit, config = unit_of(artifact.manifest), MlaDecodeConfig(**fields)
    kernel = DecodeKernel(
        KERNEL,
        jobs[LENGTHS[0]].kernel,
        {n: job.streams[0] for n, job in jobs.items()},
        min(heads, unit.rows),
        32,
    )

    def planned(lengths: Sequence[int], blocks: int) -> list[list[Part]]:
        items = plan_work(config, lengths, blocks=blocks, unit=unit).items
        return [
            [Part(int(i[0]), int(i[5]), (min(int(i[6]), -(-lengths[i[0]] // TILE)) - int(i[5]))
                  * TILE, bool(i[7] >= 0))]
            for i in items
        ]  # fmt: skip

    each = range(1, kernel.residents + 1)  # workgroups that a compute unit has at a time
    ways = tuple(lambda n, count=count: planned(n, count * unit.blocks) for count in each)
    return Side(KERNEL, kernel, ways)


def of_aiter(library: Any, form: str, heads: int, cus: int) -> Iterator[Side]:
    """AITER's objects for a call of one new token."""
    from cycle_model.aiter_decode import DECODE, persistent_groups, split_count, split_groups

    for name in THEIRS.get(("bf16" if form == "bf16" else "e4m3", heads), ()):
        kernel = DECODE[name]

        def even(lengths: Sequence[int], most: int) -> Any:
            return persistent_groups(lengths, cus, most)

        def split(lengths: Sequence[int], tile: int = kernel.tile) -> Any:
            return split_groups(lengths, split_count(len(lengths), lengths[0], cus), tile)

        ways = (lambda n: even(n, 32), lambda n: even(n, 0)) if kernel.persistent else (split,)
        yield Side(name, library.kernel(name, heads), ways)


@cache
def machines(corners: bool) -> tuple[tuple[str, Any], ...]:
    """The table's machine, then those of every plausible corner at three rates of the HBM."""
    from mlagen.timing.constants import machine
    from mlagen.timing.corners import corners as grid

    base = machine()
    found = [("", base)]
    if corners:
        found += [
            (f"{corner.name}, hbm {base.hbm * part:.0f}",
             corner.machine(base).changed(hbm=base.hbm * part))
            for corner in grid() if corner.plausible for part in HBM
        ]  # fmt: skip
    return tuple(found)


class Times:
    """Predicted microseconds of calls: growths are kept by kernel and what they hang on."""

    def __init__(self) -> None:
        self._grown: dict[Any, Any] = {}

    def us(self, side: Side, lengths: Sequence[int], on: Any) -> float:
        """Of the side's fastest way."""
        found = []
        for way in side.ways:
            groups = way(lengths)
            held = side.kernel.held(groups, on)
            key = (side.kernel, held, on.changed(hbm=6500))
            if key not in self._grown:
                self._grown[key] = side.kernel.growth(on, held)
            found.append(float(side.kernel.call(groups, on, self._grown[key]).us))
        return min(found)


def compare(
    ours: Side, theirs: Sequence[Side], row: dict[str, Any], times: Times, grid: bool
) -> Row:
    """One call."""
    lengths = [row["keys"]] * row["batch"]
    size = 2 if row["form"] == "bf16" else 1
    found: list[tuple[str, float, float, str]] = []
    for name, on in machines(grid):
        mine = times.us(ours, lengths, on)
        best = min(((times.us(s, lengths, on), s.name) for s in theirs), default=(math.nan, ""))
        found.append((name, mine, *best))
    base = machines(grid)[0][1]
    mine = found[0][1]
    rate = sum(lengths) * 576 * size / (mine * base.hbm * 1e3)
    if not theirs:
        return Row(**row, ours=mine, rate=rate)
    gains = [(other / own, name) for name, own, other, _ in found]
    low, worst = min(gains)
    return Row(**row, ours=mine, rate=rate, theirs=found[0][2], their_kernel=found[0][3],
               gain=gains[0][0], low=low, high=max(gains)[0], worst=worst)  # fmt: skip


def predictions(options: argparse.Namespace) -> list[Row]:
    """All calls; those that ours does not do are named."""
    from cycle_model.decode_validation import DecodeLibrary

    from mlagen.errors import MlagenError
    from mlagen.timing.constants import machine

    library, times, rows = DecodeLibrary(options.aiter), Times(), []
    for form in options.formats:
        for heads in options.heads:
            try:
                ours = of_ours(form, heads, options.page)
            except MlagenError as error:
                nothing = Row(form, heads, 0, 0, math.nan, math.nan, missing=error.message)
                rows.append(nothing)
                continue
            theirs = list(of_aiter(library, form, heads, machine().cus))
            for batch in options.batch:
                for keys in options.keys:
                    call = {"form": form, "heads": heads, "batch": batch, "keys": keys}
                    rows.append(compare(ours, theirs, call, times, not options.no_corners))
                    print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def show(rows: Sequence[Row]) -> None:
    """As tables of a page."""
    print(
        "| | heads | batch | keys | AITER, us | ours, us | of 6.5 TB/s | times faster | corners |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        if r.missing:
            print(f"| {r.form} | {r.heads} | | | | not there: {r.missing} | | | |")
            continue
        theirs = "" if r.theirs is None else f"{r.theirs:.1f}"
        gain = "" if r.gain is None else f"{r.gain:.2f}"
        corners = "" if r.low is None else f"{r.low:.2f} to {r.high:.2f}"
        print(f"| {r.form} | {r.heads} | {r.batch} | {r.keys} | {theirs} | {r.ours:.1f} | "
              f"{r.rate:.1%} | {gain} | {corners} |")  # fmt: skip
    for form in dict.fromkeys(r.form for r in rows):
        for batch in dict.fromkeys(r.batch for r in rows if not r.missing):
            mine = [r for r in rows if (r.form, r.batch) == (form, batch) and r.gain is not None]
            if mine:
                mean = math.exp(sum(math.log(r.gain or 1) for r in mine) / len(mine))
                least = min(mine, key=lambda r: r.low or 0)
                where = f"{least.heads} heads, {least.keys} keys; {least.worst or 'the table'}"
                print(
                    f"\n{form}, batch {batch}: geometric mean {mean:.3f}, least {least.low:.3f} "
                    f"({where})"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--aiter", type=Path, metavar="FOLDER", required=True)
    parser.add_argument("--heads", type=int, nargs="+", default=[16, 32, 64, 128])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 128])
    parser.add_argument("--keys", type=int, nargs="+",
                        default=[4096, 8192, 16384, 32768, 65536, 131072])  # fmt: skip
    parser.add_argument("--formats", choices=FORMATS, nargs="+", default=list(FORMATS))
    parser.add_argument("--page", type=int, default=1, help="of ours; AITER's objects take 1")
    parser.add_argument("--no-corners", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = predictions(options)
    if options.json:
        print(json.dumps({"schema": SCHEMA, "rows": [asdict(row) for row in rows]}))
    else:
        show(rows)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
