"""Tensors of prefill kernels as rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowTensor:
    """A tensor of rows with `head_bytes` for each of its heads; 0: all heads share the row.

    `name`: of its buffer resource; `argument`: its pointer.
    """

    name: str
    argument: str
    row_bytes: int
    head_bytes: int


@dataclass(frozen=True, slots=True)
class PrefillTensors:
    """Q, O, and the tensors that hold a row for each key."""

    q: RowTensor
    o: RowTensor
    key_rows: tuple[RowTensor, ...]
