"""What made-up inputs of prefill share: drawn tensors, made into those of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mlagen.attention.made_up import Array, Numbers, dense_sizes, each_of, paged, rows_of
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.problem.dtypes import E4M3_MAX
from mlagen.problem.formats import ELEMENT_TYPES

Tensors = dict[str, npt.NDArray[Any]]  # q [batch, rows, ...] and those of keys [batch, keys, ...]


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


class Sizes(NamedTuple):
    """Sizes of a call as a family takes them; None: the family's own."""

    batch: int | None
    seq_len: int | None
    lengths: Sequence[int] | None
    num_keys: Numbers | None
    start_pos: Numbers


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
        given: Sizes,
    ) -> Drawn:
        """Tensors of these sizes. ConfigError for sizes that the form has not."""
        batch, seq_len, lengths, num_keys, start_pos = given
        if not config.by_sequence:
            sizes = dense_sizes(batch, seq_len, lengths, num_keys, start_pos)
            made = make(
                Shapes(
                    config, sizes.batch, sizes.seq_len, max(sizes.keys, 1), sizes.start_pos, scale
                )
            )
            cut = {name: a if name == "q" else a[:, : sizes.keys] for name, a in made.items()}
            return Drawn(config, cut, (sizes.seq_len,), (sizes.keys,), (sizes.start_pos,))
        rows = rows_of(config, rng, batch, seq_len, lengths)
        starts = each_of("start_pos", start_pos, len(rows))
        if num_keys is None:
            num_keys = [start + count for start, count in zip(starts, rows, strict=True)]
        keys = each_of("num_keys", num_keys, len(rows))
        each = []
        for r, n, start in zip(rows, keys, starts, strict=True):
            # An empty sequence is made of one row or key too, which is cut off.
            made = make(Shapes(config, 1, max(r, 1), max(n, 1), start, scale))
            each.append({name: a[0, : r if name == "q" else n] for name, a in made.items()})
        packed = {name: np.concatenate([one[name] for one in each]) for name in each[0]}
        return Drawn(config, packed, tuple(rows), tuple(keys), tuple(starts))

    def quantise(self, scaled: Mapping[str, Sequence[str]]) -> dict[str, float]:
        """Divide tensors by their largest magnitude / 448, in place: the scales. `scaled`: the
        tensors that share each scale, those that there are."""
        scales = {}
        for name, of in scaled.items():
            present = [one for one in of if one in self.tensors]
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
