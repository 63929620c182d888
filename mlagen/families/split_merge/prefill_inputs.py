"""One call's data of a reduce kernel: partial results, and what says where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.families.split_merge.prefill_partials import check_reduction
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.problem.arrays import check_shape, check_type
from mlagen.problem.fields import integer
from mlagen.problem.formats import FP32

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Group:
    """Rows `first .. end - 1` of O, from as many rows of the partial buffers at each slot."""

    index: int
    first: int
    end: int
    slots: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class MlaReduceInputs:
    """Arrays of one call, as in `mlagen.families.split_merge.prefill_problem`; `rows`: those of O.

    Rows of the partial buffers that no group takes may hold anything, and so may O of a partial
    whose LSE is -inf or NaN. A group without partials leaves its rows alone.

    Raises ConfigError for shapes and types that do not fit, for groups that share rows, and for
    rows past O or the partial buffers.
    """

    config: MlaReduceConfig
    partial_o: npt.NDArray[np.float32]
    partial_lse: npt.NDArray[np.float32]
    reduce_indptr: Ints
    reduce_final_map: Ints
    reduce_partial_map: Ints
    rows: int

    def __post_init__(self) -> None:
        config = self.config
        check_type("partial_o", self.partial_o, FP32, "fp32", "np.float32")
        shape = (None, config.num_heads, config.depth)
        check_shape("partial_o", self.partial_o.shape, shape, least=0)
        check_type("partial_lse", self.partial_lse, FP32, "fp32", "np.float32")
        check_shape("partial_lse", self.partial_lse.shape, self.partial_o.shape[:2])
        object.__setattr__(self, "rows", integer("rows", self.rows))
        reached = 0
        for group in sorted(self.groups, key=lambda group: group.first):
            if group.first < reached:
                raise ConfigError(
                    f"reduce_final_map[{group.index}] begins at row {group.first}, but another "
                    f"group goes to row {reached - 1}"
                )
            reached = group.end
            self._check_group(group)

    def _check_group(self, group: Group) -> None:
        if group.end > self.rows:
            raise ConfigError(
                f"reduce_final_map[{group.index}] ends at row {group.end - 1}, O has {self.rows} "
                f"rows"
            )
        for slot in group.slots:
            if not 0 <= slot <= len(self.partial_o) - (group.end - group.first):
                raise ConfigError(
                    f"reduce_partial_map has {slot}: group {group.index} takes "
                    f"{group.end - group.first} rows from there, the partial buffers have "
                    f"{len(self.partial_o)}"
                )

    @property
    def groups(self) -> tuple[Group, ...]:
        """All groups, in order."""
        found = check_reduction(self.reduce_indptr, self.reduce_final_map, self.reduce_partial_map)
        return tuple(
            Group(index, first, end, tuple(slots))
            for index, ((first, end), slots) in enumerate(found.items())
        )

    @property
    def merged(self) -> tuple[Group, ...]:
        """The groups that have partials: the kernel writes their rows, and no others."""
        return tuple(group for group in self.groups if group.slots)

    @property
    def most_rows(self) -> int:
        """Rows of the longest group; 0 where there is none."""
        return max((group.end - group.first for group in self.groups), default=0)

    def parts(
        self, group: Group
    ) -> tuple[Sequence[npt.NDArray[np.float32]], Sequence[npt.NDArray[np.float32]]]:
        """Partial O [rows, heads, depth] and LSE [rows, heads] of each of the group's slots."""
        at = [slice(slot, slot + group.end - group.first) for slot in group.slots]
        return [self.partial_o[rows] for rows in at], [self.partial_lse[rows] for rows in at]
