"""Which rows of a prefill call an oracle answers for: rows x heads, or those of some workgroups.

Large problems are checked by some of their workgroups: the work is that of their rows alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlagen.attention.prefill.inputs import PrefillInputs, PrefillSequence
from mlagen.attention.prefill.scores import Ints
from mlagen.errors import ConfigError
from mlagen.problem.expected import Lines

Workgroup = tuple[int, int, int]  # grid x, y, z: head (remapped), query tile, sequence


@dataclass(frozen=True, eq=False)
class HeadRows:
    """Rows of one sequence and one query head. `at` selects them in arrays [batch, rows, heads]."""

    sequence: PrefillSequence
    head: int
    rows: Ints  # local, ascending
    batch_at: int
    first_at: int
    head_at: int

    def at(self, block: slice) -> tuple[int, slice, int]:
        """Where `rows[block]` lie."""
        return (
            self.batch_at,
            slice(self.first_at + block.start, self.first_at + block.stop),
            self.head_at,
        )


@dataclass(frozen=True, eq=False)
class Selection:
    """All parts of an answer, and its shape [batch, rows, heads]. See `Expected` for the rest."""

    parts: tuple[HeadRows, ...]
    shape: tuple[int, int, int]
    rows: Ints
    heads: Ints
    lines: Lines | None

    @staticmethod
    def of(
        inputs: PrefillInputs,
        rows: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        workgroups: Sequence[Workgroup] | None = None,
    ) -> Selection:
        """The rows and heads chosen (None: all), or the rows of `workgroups`.

        ConfigError for rows, heads and workgroups that do not exist.
        """
        if workgroups is None:
            return _product(inputs, inputs.rows(rows), inputs.heads(heads))
        if rows is not None or heads is not None:
            raise ConfigError("rows and heads are those of the workgroups; give one or the other")
        return _of_workgroups(inputs, workgroups)


def workgroup_rows(inputs: PrefillInputs, workgroup: Workgroup) -> Ints:
    """The local rows that a workgroup computes; none where its tile lies past the sequence."""
    grid = inputs.config.grid(inputs.seq_len, inputs.batch)
    if not all(0 <= index < count for index, count in zip(workgroup, grid, strict=True)):
        raise ConfigError(f"workgroup {workgroup} lies outside the grid {grid}")
    first = workgroup[1] * inputs.config.q_tile
    end = min(first + inputs.config.q_tile, inputs.sequences[workgroup[2]].rows)
    return np.arange(first, max(first, end))


def _product(inputs: PrefillInputs, rows: Ints, heads: Ints) -> Selection:
    parts = []
    ragged = inputs.config.ragged
    for sequence in inputs.sequences:
        own, first = rows, 0
        if ragged:
            first, end = np.searchsorted(
                rows, [sequence.first_row, sequence.first_row + sequence.rows]
            ).tolist()
            own = rows[first:end] - sequence.first_row
        batch = 0 if ragged else sequence.index
        if own.size:
            parts += [
                HeadRows(sequence, int(head), own, batch, first, index)
                for index, head in enumerate(heads)
            ]
    batches = 1 if ragged else inputs.batch
    return Selection(tuple(parts), (batches, len(rows), len(heads)), rows, heads, None)


def _of_workgroups(inputs: PrefillInputs, workgroups: Sequence[Workgroup]) -> Selection:
    parts: list[HeadRows] = []
    lines: list[Ints] = []  # of each part: [3, rows]
    count = 0
    for workgroup in sorted(set(workgroups), key=lambda group: group[::-1]):
        rows = workgroup_rows(inputs, workgroup)
        sequence, head = inputs.sequences[workgroup[2]], inputs.config.head_of(workgroup[0])
        if rows.size:
            parts.append(HeadRows(sequence, head, rows, 0, count, 0))
            batch = 0 if inputs.config.ragged else sequence.index
            named = np.broadcast_arrays(batch, sequence.first_row + rows, head)
            lines.append(np.stack(named))
            count += len(rows)
    named_lines = np.concatenate(lines, axis=1) if lines else np.zeros((3, 0), np.int64)
    return Selection(
        tuple(parts),
        (1, count, 1),
        np.unique(named_lines[1]),
        np.unique(named_lines[2]),
        Lines(*named_lines),
    )
