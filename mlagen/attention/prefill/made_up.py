"""What made-up inputs of prefill share: drawn tensors, made into those of a call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from mlagen.attention.made_up import (
    Array,
    Numbers,
    dense_sizes,
    each_of,
    paged,
    require_kind,
    rows_of,
)
from mlagen.attention.prefill.call_scales import check_scale, default_scale
from mlagen.attention.prefill.inputs import PrefillInputs
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.problem.arrays import untouched
from mlagen.problem.dtypes import E4M3_MAX
from mlagen.problem.formats import ELEMENT_TYPES

Inputs = TypeVar("Inputs", bound=PrefillInputs)
Tensors = dict[str, npt.NDArray[Any]]  # q [batch, rows, ...] and those of keys [batch, keys, ...]
Heads = Mapping[int, Collection[int]]  # query heads of sequences
# batch, seq_len, lengths, num_keys, start_pos
Given = tuple[int | None, int | None, Sequence[int] | None, Numbers | None, Numbers]


# The tensors that share each scale, those that there are.
_SCALED = {"q_scale": ("q",), "k_scale": ("k", "k_rope"), "v_scale": ("v",)}


class Shapes:
    """What the kinds of data need to know. `levels`: columns that may carry a key's level."""

    def __init__(
        self,
        config: PrefillConfig,
        batch: int,
        seq_len: int,
        keys: int,
        start_pos: int,
        scale: float,
    ) -> None:
        self.config, self.keys, self.start_pos, self.scale = config, keys, start_pos, scale
        self.depth, self.levels = config.qk_width, config.v_width
        self.q = (batch, seq_len, config.num_heads, self.depth)
        self.kv = (batch, keys, config.num_kv_heads, self.depth)

    def each_query_head(self, of_kv_head: Array) -> Array:
        """[num_kv_heads, …] -> [num_heads, …]."""
        return np.repeat(of_kv_head, self.config.group, axis=0)


Draw = Callable[[np.random.Generator, Shapes], tuple[Array, Array, Array]]  # Q, K and V
Make = Callable[[Shapes], Tensors]


@dataclass(frozen=True)
class Extents:
    """The sizes of a call: `rows` and `keys` of each sequence, and `starts`, the position of each
    first row. Dense: one of each, and `batch` sequences alike."""

    batch: int
    rows: tuple[int, ...]
    keys: tuple[int, ...]
    starts: tuple[int, ...]

    @staticmethod
    def of(config: PrefillConfig, rng: np.random.Generator, given: Given) -> Extents:
        """ConfigError for sizes that the form has not."""
        batch, seq_len, lengths, num_keys, start_pos = given
        if not config.by_sequence:
            batch, dense_rows, dense_keys, start = dense_sizes(*given)
            return Extents(batch, (dense_rows,), (dense_keys,), (start,))
        rows = rows_of(config, rng, batch, seq_len, lengths)
        starts = each_of("start_pos", start_pos, len(rows))
        if num_keys is None:
            num_keys = [start + count for start, count in zip(starts, rows, strict=True)]
        keys = each_of("num_keys", num_keys, len(rows))
        return Extents(len(rows), tuple(rows), tuple(keys), tuple(starts))

    def sequence(self, index: int) -> tuple[int, int, int]:
        """Rows, keys and first position of a sequence."""
        at = index if len(self.rows) > 1 else 0
        return self.rows[at], self.keys[at], self.starts[at]


@dataclass(frozen=True)
class Drawn:
    """The fp64 tensors of a call, as it has them but for pages: dense [batch, rows or keys, ...],
    or those of all sequences, packed."""

    config: PrefillConfig
    tensors: Tensors
    extents: Extents

    @staticmethod
    def of(config: PrefillConfig, extents: Extents, scale: float, make: Make) -> Drawn:
        """Tensors of these sizes."""
        if not config.by_sequence:
            rows, keys, start = extents.sequence(0)
            made = make(Shapes(config, extents.batch, rows, max(keys, 1), start, scale))
            cut = {name: a if name == "q" else a[:, :keys] for name, a in made.items()}
            return Drawn(config, cut, extents)
        each = []
        for index in range(extents.batch):
            r, n, start = extents.sequence(index)
            # An empty sequence is made of one row or key too, which is cut off.
            made = make(Shapes(config, 1, max(r, 1), max(n, 1), start, scale))
            each.append({name: a[0, : r if name == "q" else n] for name, a in made.items()})
        packed = {name: np.concatenate([one[name] for one in each]) for name in each[0]}
        return Drawn(config, packed, extents)

    def stored(self, quantise: bool) -> tuple[Tensors, dict[str, float]]:
        """The tensors in the problem's dtype, and their scales: none where they are not divided by
        their largest magnitude / 448."""
        scales = quantised([self.tensors]) if quantise else {}
        element = ELEMENT_TYPES[self.config.dtype]
        return {name: a.astype(element) for name, a in self.tensors.items()}, scales


def quantised(parts: Sequence[Tensors]) -> dict[str, float]:
    """Divides tensors, of which `parts` have some of the numbers each, by their largest magnitude /
    448, in place: the scales."""
    scales: dict[str, float] = {}
    for name, of in _SCALED.items():
        present = [(part, one) for part in parts for one in of if one in part]
        if not present:  # K's rows are V's
            scales[name] = scales["k_scale"]
            continue
        most = max(float(np.nanmax(np.abs(part[one]), initial=0.0)) for part, one in present)
        scales[name] = float(np.float32((most or 1.0) / E4M3_MAX))
        for part, one in present:
            # The largest may come out a hair above 448 and is 448.
            part[one] = np.clip(part[one] / scales[name], -E4M3_MAX, E4M3_MAX)
    return scales


def call_arrays(
    config: PrefillConfig,
    rng: np.random.Generator,
    extents: Extents,
    tensors: Tensors,
    only: Collection[int] | None,
) -> dict[str, Any]:
    """A call's arrays, by their names: its tensors, those of keys in pages where it has some,
    offsets and positions. `only` as for `paged`."""
    found: dict[str, Any] = dict(tensors)
    if not config.by_sequence:
        return found | {"start_pos": extents.starts[0]}
    if config.ragged:
        found["q_offsets"] = np.cumsum([0, *extents.rows], dtype=np.int32)
    else:
        found["q"] = found["q"].reshape(extents.batch, -1, *found["q"].shape[1:])
    if config.page_size:
        names = [name for name in tensors if name != "q"]
        cuts = np.cumsum(extents.keys)[:-1]
        split = [np.split(found[name], cuts) for name in names]
        table, pools = paged(rng, config.page_size, split, only)
        found |= dict(zip(names, pools, strict=True))
        found |= {"kv_lengths": np.array(extents.keys, np.int32), "page_table": table}
    else:
        found["kv_offsets"] = np.cumsum([0, *extents.keys], dtype=np.int32)
    return found | {"start_pos": np.array(extents.starts, np.int32)}


@dataclass(frozen=True)
class InPart:
    """The same where only some heads have numbers. `parts`: the tensors of one sequence's query
    heads that share a K/V head, and that sequence, those heads."""

    config: PrefillConfig
    parts: tuple[tuple[Tensors, int, tuple[int, ...]], ...]
    extents: Extents

    @staticmethod
    def of(
        config: PrefillConfig, extents: Extents, scale: float, make: Make, only: Heads
    ) -> InPart:
        """Tensors of the query heads of sequences that `only` names."""
        parts = []
        for index, heads in only.items():
            rows, keys, start = extents.sequence(index)
            sharing: dict[int, list[int]] = {}
            for head in sorted(set(heads)):
                sharing.setdefault(config.kv_head_of(head), []).append(head)
            for own in sharing.values():
                few: Any = config  # of a class that has these fields
                few = replace(few, num_heads=len(own), num_kv_heads=1)
                made = make(Shapes(few, 1, max(rows, 1), max(keys, 1), start, scale))
                cut = {name: a[0, : rows if name == "q" else keys] for name, a in made.items()}
                parts.append((cut, index, tuple(own)))
        return InPart(config, tuple(parts), extents)

    def stored(self, quantise: bool) -> tuple[Tensors, dict[str, float]]:
        """As `Drawn.stored`."""
        config, extents = self.config, self.extents
        element = ELEMENT_TYPES[config.dtype]
        scales = quantised([part for part, _, _ in self.parts]) if quantise and self.parts else {}
        widths = {"q": (config.num_heads, config.qk_width), **config.key_shapes}
        found = {}
        for name, width in widths.items():
            counts = extents.rows if name == "q" else extents.keys
            leading = (sum(counts),) if config.by_sequence else (extents.batch, counts[0])
            found[name] = untouched((*leading, *width), element)
            firsts = np.cumsum([0, *counts])
            for part, index, heads in self.parts:
                whole = found[name]
                own = whole[firsts[index] :] if config.by_sequence else whole[index]
                values = part[name].astype(element)
                if len(width) == 1:  # all heads share it
                    own[: len(values)] = values
                    continue
                of = heads if name == "q" else (config.kv_head_of(heads[0]),)
                own[: len(values), list(of)] = values
        return found, scales


def _as_drawn(config: Any, q: Array, k: Array, v: Array) -> Tensors:
    return {"q": q, "k": k, "v": v}


def _nothing(rng: np.random.Generator, config: Any) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class MadeUp(Generic[Inputs]):
    """Makes inputs of one family. `kinds`: of data; `form`: what is drawn as tensors in the
    problem's form; `more`: further arrays of a call."""

    inputs_type: type[Inputs]
    kinds: Mapping[str, Draw]
    form: Callable[[Any, Array, Array, Array], Tensors] = _as_drawn
    more: Callable[[np.random.Generator, Any], dict[str, Any]] = _nothing

    def __call__(
        self,
        config: PrefillConfig,
        *,
        batch: int | None = None,
        seq_len: int | None = None,
        lengths: Sequence[int] | None = None,
        num_keys: Numbers | None = None,
        start_pos: Numbers = 0,
        data: str = "realistic",
        seed: int = 0,
        scale: float | None = None,
        quantise: bool = False,
        only: Heads | None = None,
    ) -> Inputs:
        """Inputs of a problem.

        Dense: `batch` sequences (1) of `seq_len` rows (512). Ragged: `lengths`, the rows of each
        sequence, or without them `batch` of them (3), the first of `seq_len` rows (300), the others
        drawn, short ones as likely as long ones. `num_keys` is `start_pos` plus the rows where it
        is not given. Where sequences have their own, `num_keys` and `start_pos` may be one number
        for all or one for each, and rows and keys may be 0.

        The numbers are rounded to the problem's dtype. `quantise` (fp8): each tensor is divided by
        its largest magnitude / 448 before, and the scales say so; otherwise they are 1. `only`: the
        query heads of sequences that have numbers, and their keys; all others are `untouched`.

        Raises ConfigError for numbers that are too small or that the form does not take, an unknown
        kind of data, and what `inputs_type` refuses.
        """
        require_kind(data, self.kinds)
        rng = np.random.default_rng([seed, *data.encode()])
        scale = check_scale(config, default_scale(config) if scale is None else scale)
        given = (batch, seq_len, lengths, num_keys, start_pos)
        extents = Extents.of(config, rng, given)

        def make(shapes: Shapes) -> Tensors:
            return self.form(config, *self.kinds[data](rng, shapes))

        if only is None:
            drawn: Drawn | InPart = Drawn.of(config, extents, scale, make)
        else:
            drawn = InPart.of(config, extents, scale, make, only)
        more = self.more(rng, config)  # before the pages: the same without them
        tensors, scales = drawn.stored(quantise)
        arrays = call_arrays(config, rng, extents, tensors, only)
        found = {"v": None, **more, **arrays, **scales}
        return self.inputs_type(config, scale=scale, **found)
