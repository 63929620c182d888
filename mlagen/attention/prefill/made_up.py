"""What made-up inputs of prefill share: drawn tensors, made into those of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from mlagen.attention.prefill.inputs import PrefillInputs
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.attention.prefill.scales import check_scale, default_scale
from mlagen.problem.dtypes import E4M3_MAX
from mlagen.problem.formats import ELEMENT_TYPES

Inputs = TypeVar("Inputs", bound=PrefillInputs)
Tensors = dict[str, npt.NDArray[Any]]  # q [batch, rows, ...] and those of keys [batch, keys, ...]


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


@dataclass(frozen=True)
class Drawn:
    """The fp64 tensors of a call. Dense: [batch, rows or keys, ...]; where sequences have their own
    lengths, `rows` and `keys` of each, packed. `starts`: the position of each first row."""

    config: PrefillConfig
    tensors: Tensors
    rows: tuple[int, ...]
    keys: tuple[int, ...]
    starts: tuple[int, ...]

    @staticmethod
    def of(
        config: PrefillConfig,
        rng: np.random.Generator,
        make: Callable[[Shapes], Tensors],
        scale: float,
        given: tuple[int | None, int | None, Sequence[int] | None, Numbers | None, Numbers],
    ) -> Drawn:
        """Tensors of the sizes that are `given`: batch, seq_len, lengths, num_keys, start_pos.
        ConfigError for sizes that the form has not."""
        batch, seq_len, lengths, num_keys, start_pos = given
        if not config.by_sequence:
            batch, rows, keys, start = dense_sizes(*given)
            made = make(Shapes(config, batch, rows, max(keys, 1), start, scale))
            cut = {name: a if name == "q" else a[:, :keys] for name, a in made.items()}
            return Drawn(config, cut, (rows,), (keys,), (start,))
        each_rows = rows_of(config, rng, batch, seq_len, lengths)
        starts = each_of("start_pos", start_pos, len(each_rows))
        if num_keys is None:
            num_keys = [start + count for start, count in zip(starts, each_rows, strict=True)]
        each_keys = each_of("num_keys", num_keys, len(each_rows))
        each = []
        for r, n, start in zip(each_rows, each_keys, starts, strict=True):
            # An empty sequence is made of one row or key too, which is cut off.
            made = make(Shapes(config, 1, max(r, 1), max(n, 1), start, scale))
            each.append({name: a[0, : r if name == "q" else n] for name, a in made.items()})
        packed = {name: np.concatenate([one[name] for one in each]) for name in each[0]}
        return Drawn(config, packed, tuple(each_rows), tuple(each_keys), tuple(starts))

    def quantise(self) -> dict[str, float]:
        """Divide tensors by their largest magnitude / 448, in place: the scales."""
        scales: dict[str, float] = {}
        for name, of in _SCALED.items():
            present = [one for one in of if one in self.tensors]
            if not present:  # K's rows are V's
                scales[name] = scales["k_scale"]
                continue
            most = max(float(np.nanmax(np.abs(self.tensors[one]), initial=0.0)) for one in present)
            scales[name] = float(np.float32((most or 1.0) / E4M3_MAX))
            for one in present:
                # The largest may come out a hair above 448 and is 448.
                values = self.tensors[one] / scales[name]
                self.tensors[one] = np.clip(values, -E4M3_MAX, E4M3_MAX)
        return scales

    def arrays(self, rng: np.random.Generator) -> dict[str, Any]:
        """Tensors in the problem's dtype, offsets, pages and positions, by the names of a call."""
        config = self.config
        element = ELEMENT_TYPES[config.dtype]
        found: dict[str, Any] = {name: a.astype(element) for name, a in self.tensors.items()}
        if not config.by_sequence:
            return found | {"start_pos": self.starts[0]}
        if config.ragged:
            found["q_offsets"] = np.cumsum([0, *self.rows], dtype=np.int32)
        else:
            found["q"] = found["q"].reshape(len(self.rows), -1, *found["q"].shape[1:])
        if config.page_size:
            names = [name for name in self.tensors if name != "q"]
            cuts = np.cumsum(self.keys)[:-1]
            table, pools = paged(rng, config.page_size, [np.split(found[n], cuts) for n in names])
            found |= dict(zip(names, pools, strict=True))
            found |= {"kv_lengths": np.array(self.keys, np.int32), "page_table": table}
        else:
            found["kv_offsets"] = np.cumsum([0, *self.keys], dtype=np.int32)
        return found | {"start_pos": np.array(self.starts, np.int32)}


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
    ) -> Inputs:
        """Inputs of a problem.

        Dense: `batch` sequences (1) of `seq_len` rows (512). Ragged: `lengths`, the rows of each
        sequence, or without them `batch` of them (3), the first of `seq_len` rows (300), the others
        drawn, short ones as likely as long ones. `num_keys` is `start_pos` plus the rows where it
        is not given. Where sequences have their own, `num_keys` and `start_pos` may be one number
        for all or one for each, and rows and keys may be 0.

        The numbers are rounded to the problem's dtype. `quantise` (fp8): each tensor is divided by
        its largest magnitude / 448 before, and the scales say so; otherwise they are 1.

        Raises ConfigError for numbers that are too small or that the form does not take, an unknown
        kind of data, and what `inputs_type` refuses.
        """
        require_kind(data, self.kinds)
        rng = np.random.default_rng([seed, *data.encode()])
        scale = check_scale(config, default_scale(config) if scale is None else scale)
        drawn = Drawn.of(
            config, rng, lambda shapes: self.form(config, *self.kinds[data](rng, shapes)), scale,
            (batch, seq_len, lengths, num_keys, start_pos),
        )  # fmt: skip
        more = self.more(rng, config)  # before the pages: the same without them
        scales = drawn.quantise() if quantise else {}
        given = {"v": None, **more, **drawn.arrays(rng), **scales}
        return self.inputs_type(config, scale=scale, **given)
