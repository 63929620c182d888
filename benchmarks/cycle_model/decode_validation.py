"""The model of memory-bound launches against published measurements of decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cycle_model.aiter_decode import DECODE, decode_kernel
from cycle_model.aiter_prefill import load
from cycle_model.decode import DecodeKernel, DecodeTime
from cycle_model.decode_points import POINTS, DecodePoint
from cycle_model.ladder import Growth
from cycle_model.object_folder import ObjectFolder
from cycle_model.validation import Score

from mlagen.timing.constants import Machine
from mlagen.timing.text import TimingTable

LONG_CALL: Final = 60.0  # us: shorter calls are start and end for the most part
# Errors of the held-out calls without a doubt, from LONG_CALL on (docs/timing.md): mean and worst
# of all, then of those that the memory limits.
DECODE_ERROR: Final = (0.051, 0.148)
SHARED_ERROR: Final = (0.027, 0.074)


class DecodeLibrary(ObjectFolder[DecodeKernel]):
    """Decode kernels of a folder, recorded when they are asked for."""

    def kernel(self, name: str, heads: int, commit: str | None = None) -> DecodeKernel:
        """MissingError where its object is not in the folder."""
        kernel = DECODE[name]
        path = self.place(name, kernel.path, commit)
        return self.kept(path, (path, heads), lambda: decode_kernel(load(path), kernel, heads))


@dataclass(frozen=True, slots=True)
class DecodeVerdict:
    """A point and what the model says of it."""

    point: DecodePoint
    time: DecodeTime

    @property
    def error(self) -> float:
        """Of the time."""
        return self.time.us / self.point.us - 1

    @property
    def held_out(self) -> bool:
        return not self.point.fixes

    @property
    def counts(self) -> bool:
        """Held out, long enough to tell anything, and of a call that is known."""
        return self.held_out and self.point.us >= LONG_CALL and not self.point.doubt


def decode_verdicts(
    library: DecodeLibrary, on: Machine, points: Sequence[DecodePoint] = POINTS
) -> list[DecodeVerdict]:
    """All points."""
    grown: dict[tuple[DecodeKernel, Machine, int], Growth] = {}
    found = []
    for point in points:
        kernel = library.kernel(point.kernel, point.heads, point.commit)
        chip = point.chip(on)
        groups = point.groups(chip)
        held = kernel.held(groups, chip)
        if (kernel, chip, held) not in grown:
            grown[kernel, chip, held] = kernel.growth(chip, held)
        time = kernel.call(groups, chip, grown[kernel, chip, held])
        found.append(DecodeVerdict(point, time))
    return found


def decode_facts(found: Sequence[DecodeVerdict]) -> list[tuple[str, str]]:
    """Errors in a few lines."""
    groups = (
        ("decode, held out, 60 us and more", [v for v in found if v.counts]),
        ("  that the memory limits", [v for v in found if v.counts and v.time.shares]),
        ("  that issue limits", [v for v in found if v.counts and not v.time.shares]),
        ("  with those of which something is not known",
         [v for v in found if v.held_out and v.point.us >= LONG_CALL]),
        ("  shorter", [v for v in found if v.point.us < LONG_CALL]),
    )  # fmt: skip
    scores = [(name, Score.of([v.error for v in chosen])) for name, chosen in groups]
    return [
        (n, f"{s.count} calls, mean error {s.mean:.1%}, worst {s.worst:.1%}") for n, s in scores
    ]


def decode_table(found: Sequence[DecodeVerdict], substitutes: set[tuple[str, str]]) -> TimingTable:
    """Every point."""
    rows = []
    for verdict in found:
        point, time = verdict.point, verdict.time
        stand_in = (point.kernel, point.commit) in substitutes
        rows.append((
            point.kernel, point.source, "newest" if stand_in else point.commit, str(point.heads),
            str(point.batch), str(point.keys), f"{point.us:.1f}", f"{time.us:.1f}",
            f"{verdict.error:+.1%}", f"{time.rate:.2f}", "memory" if time.shares else "issue",
            "fixed" if point.fixes else point.doubt,
        ))  # fmt: skip
    columns = ("kernel", "source", "object", "rows", "batch", "keys", "measured", "predicted",
               "error", "TB/s", "limit", "")  # fmt: skip
    return TimingTable("us of an MLA decode call, measured and predicted", columns, tuple(rows))
