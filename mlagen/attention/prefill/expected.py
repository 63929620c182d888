"""What an oracle of prefill says: the output and the log-sum-exp, each with its bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlagen.attention.prefill.inputs import PrefillInputs
from mlagen.attention.prefill.scores import LN2, HeadData, lse_error, sink_error
from mlagen.attention.prefill.selection import HeadRows, Selection
from mlagen.problem.expected import Alternative, Expected
from mlagen.problem.formats import Floats, confidence, scale_log2e


@dataclass(frozen=True, eq=False)
class PrefillExpected:
    """An oracle's answer. `output` is for `compare` with `inputs.output_view(o)`; `lse`, whose
    depth is 1, for `compare` with `inputs.lse_view(lse)`: natural logarithm, the sink included,
    -inf for a row that has neither key nor sink."""

    output: Expected
    lse: Expected


class Answer:
    """The arrays that an oracle fills. They start as those of rows that see no key."""

    def __init__(self, inputs: PrefillInputs, selection: Selection) -> None:
        shape = selection.shape
        self.inputs, self.selection = inputs, selection
        numbers = int(np.prod(shape)) * (inputs.keys + inputs.config.v_width)
        self.factor = confidence(numbers)  # of bounds on sums of independent errors
        self.values = np.zeros((*shape, inputs.config.v_width))
        self.bounds = np.zeros(self.values.shape)
        self.lse = np.full((*shape, 1), -np.inf)
        self.lse_bounds = np.zeros(self.lse.shape)
        for part in selection.parts:
            sink = inputs.sink_of(part.head)
            if not np.isneginf(sink):
                at = part.at(slice(0, len(part.rows)))
                self.lse[at] = sink
                maximum = np.full((), abs(scale_log2e(sink)))
                self.lse_bounds[at] = LN2 * sink_error(sink) + lse_error(maximum, 0.0 * maximum)

    def with_data(self) -> Iterator[tuple[HeadRows, HeadData]]:
        """The parts, each with its keys and values; heads of one K/V head share them."""
        known: dict[tuple[int, int], HeadData] = {}
        for part in self.selection.parts:
            name = (part.sequence.index, self.inputs.config.kv_head_of(part.head))
            if name not in known:
                known[name] = HeadData.of(self.inputs, part.sequence, name[1])
            yield part, known[name]

    def put(
        self, at: tuple[int, slice, int], output: tuple[Floats, Floats], lse: tuple[Floats, Floats]
    ) -> None:
        """Values and bounds of some rows: of the output [rows, depth], of the LSE [rows, 1]."""
        self.values[at], self.bounds[at] = output
        self.lse[at], self.lse_bounds[at] = lse

    def expected(
        self,
        oracle: str,
        alternatives: tuple[Alternative, ...] = (),
        lse_alternatives: tuple[Alternative, ...] = (),
        undecided: int = 0,
    ) -> PrefillExpected:
        """The answer under the oracle's name."""
        of: dict[str, Any] = {
            "rows": self.selection.rows, "heads": self.selection.heads,
            "lines": self.selection.lines, "undecided": undecided,
        }  # fmt: skip
        return PrefillExpected(
            Expected(oracle, self.values, self.bounds, alternatives=alternatives, **of),
            Expected(
                f"{oracle} LSE",
                self.lse,
                self.lse_bounds,
                alternatives=lse_alternatives,
                output="lse",
                **of,
            ),
        )
