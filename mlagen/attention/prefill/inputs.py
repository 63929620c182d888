"""One call's data of a prefill problem: what its forms have in common, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.masks import MAX_POSITION
from mlagen.attention.prefill.arithmetic import Arithmetic, arithmetic_of
from mlagen.attention.prefill.arrays import Ints, checked_start_positions
from mlagen.attention.prefill.call_scales import CallScales, checked_scales
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.errors import ConfigError
from mlagen.problem.arrays import check_int32, check_offsets, check_pages, check_tensor
from mlagen.problem.fields import integer


@dataclass(frozen=True, slots=True)
class PrefillSequence:
    """One sequence of a call: its query rows, where they stand, and how many keys it has."""

    index: int
    first_row: int  # of the packed rows, where rows are packed
    rows: int
    start_pos: int  # position of its first row
    keys: int


@dataclass(frozen=True, eq=False)
class PrefillInputs:
    """Base of the calls of prefill kernels: Q, K, V and the run-time numbers of one call.

    `q` and the tensors of keys have the problem's dtype and the shapes of its form. Query row i of
    a sequence stands at position `start_pos + i`; key j at position j. `scale` multiplies the dot
    products. fp8 tensors hold numbers divided by `q_scale`, `k_scale` and `v_scale`, one fp32
    number each; the kernel multiplies them back. For bf16 all three are 1.

    Dense and contiguous: `start_pos` is one number. The first `num_keys` rows of each sequence are
    keys (None: all rows); what lies past them has no meaning.

    Ragged or paged: `start_pos` is int32 [batch], or one number for all sequences. Ragged:
    `q_offsets` int32 [batch + 1], from 0 to the rows of q; contiguous keys: `kv_offsets` likewise.
    Paged: `kv_lengths` int32 [batch] and `page_table` int32 [batch, max_pages]; rows past a
    length, pages that no sequence uses and table entries past a sequence's pages have no
    meaning. Sequences may be empty, of queries and of keys.
    """

    config: PrefillConfig
    q: npt.NDArray[Any]
    k: npt.NDArray[Any]
    v: npt.NDArray[Any] | None
    scale: float
    start_pos: int | Ints = 0
    num_keys: int | None = None
    q_offsets: Ints | None = None
    kv_offsets: Ints | None = None
    kv_lengths: Ints | None = None
    page_table: Ints | None = None
    q_scale: float = 1.0
    k_scale: float = 1.0
    v_scale: float = 1.0

    def _check_form(self, more: Mapping[str, bool]) -> None:
        """ConfigError for tensors, offsets, tables and positions that do not fit the form.

        `more`: names of further arrays, and whether the kernel takes them.
        """
        config = self.config
        self._check_what_is_given(more)
        row = (config.num_heads, config.qk_width)
        if not config.ragged:
            check_tensor("q", self.q, (None, None, *row), config.dtype)
        else:
            check_tensor("q", self.q, (None, *row), config.dtype, rows=0)
            check_int32("q_offsets", self.q_offsets, (None,))
            check_offsets("q_offsets", _there(self.q_offsets), self.q.shape[0], "q")
        leading = len(self._kv_shape)
        for name, array in self.key_tensors().items():
            shape = (*self._kv_shape, *config.key_shapes[name])
            rows = None if config.page_size else leading - 1
            check_tensor(name, array, shape, config.dtype, rows=rows)
            if array.shape[:leading] != self.k.shape[:leading]:
                raise ConfigError(f"k has shape {self.k.shape}, but {name} has {array.shape}")
        if config.by_sequence:
            starts = checked_start_positions(self.start_pos, self.batch)
            object.__setattr__(self, "start_pos", starts)
            self._check_keys()
        else:
            self._check_dense()
        self._check_positions()

    def _check_positions(self) -> None:
        config = self.config
        for sequence in self.sequences:
            # Whole query tiles have positions, also those rows of the last that do not exist.
            end = sequence.start_pos + config.q_tiles(sequence.rows) * config.q_tile
            if end - 1 > MAX_POSITION:
                which = f"[{sequence.index}]" if config.by_sequence else ""
                raise ConfigError(
                    f"start_pos{which}={sequence.start_pos} with {sequence.rows} rows: positions "
                    f"must stay within 0 .. {MAX_POSITION}"
                )

    def _check_what_is_given(self, more: Mapping[str, bool]) -> None:
        """ConfigError for an array that the form needs and has not, or has and does not take."""
        config = self.config
        needs = {
            "q_offsets": config.ragged,
            "kv_offsets": config.ragged and not config.page_size,
            "kv_lengths": config.page_size > 0,
            "page_table": config.page_size > 0,
            **more,
        }
        form = config.form
        for name, needed in needs.items():
            given = getattr(self, name) is not None
            if needed and not given:
                raise ConfigError(f"{name} is missing: the kernel is built for {form}")
            if given and not needed:
                takes = [other for other, wanted in needs.items() if wanted]
                raise ConfigError(
                    f"{name} is given, but the kernel does not take it: it is built for {form}",
                    hint=f"it takes {', '.join(takes) or 'none of these arrays'}",
                )
        if config.by_sequence and self.num_keys is not None:
            raise ConfigError(
                f"num_keys={self.num_keys} is given, but the kernel is built for {form}",
                hint=f"{'kv_lengths' if config.page_size else 'kv_offsets'} tells each sequence's "
                f"keys",
            )

    @property
    def _kv_shape(self) -> tuple[int | None, ...]:
        """The shape of a tensor of keys, without that of a key."""
        if self.config.page_size:
            return (None, self.config.page_size)
        return (None,) if self.config.ragged else (self.batch, None)

    def _check_keys(self) -> None:
        if self.config.page_size:
            check_int32("kv_lengths", self.kv_lengths, (self.batch,))
            check_int32("page_table", self.page_table, (self.batch, None))
            check_pages(
                ("kv_lengths", "page_table", "page_table"), _there(self.page_table),
                _there(self.kv_lengths), page_size=self.config.page_size, pool=self.k.shape[0],
                of="keys",
            )  # fmt: skip
        else:
            check_int32("kv_offsets", self.kv_offsets, (self.batch + 1,))
            check_offsets("kv_offsets", _there(self.kv_offsets), self.k.shape[0], "k and v")

    def _check_dense(self) -> None:
        if isinstance(self.start_pos, np.ndarray):
            raise ConfigError(
                "start_pos is an array, but all sequences of a dense, contiguous kernel start at "
                "one position",
                hint="ragged=true or a page_size makes a kernel that takes one a sequence",
            )
        object.__setattr__(self, "start_pos", integer("start_pos", self.start_pos))
        if not 0 <= self.start_pos <= MAX_POSITION:
            raise ConfigError(f"start_pos={self.start_pos} is not in 0 .. {MAX_POSITION}")
        if self.num_keys is None:
            object.__setattr__(self, "num_keys", self.k.shape[1])
        if not 0 <= self.keys <= self.k.shape[1]:
            raise ConfigError(f"num_keys={self.keys} is not in 0 .. {self.k.shape[1]}, k's rows")

    # ---- what a call is made of -------------------------------------------------------------

    @property
    def batch(self) -> int:
        """Sequences."""
        return len(_there(self.q_offsets)) - 1 if self.config.ragged else int(self.q.shape[0])

    @property
    def seq_len(self) -> int:
        """Query rows a sequence; of the longest, where they differ."""
        if self.config.ragged:
            return int(np.diff(_there(self.q_offsets)).max())
        return int(self.q.shape[1])

    @property
    def keys(self) -> int:
        """Keys a sequence; of the longest, where they differ."""
        if self.config.page_size:
            return int(_there(self.kv_lengths).max())
        if self.config.ragged:
            return int(np.diff(_there(self.kv_offsets)).max())
        return self.k.shape[1] if self.num_keys is None else self.num_keys

    @cached_property
    def sequences(self) -> tuple[PrefillSequence, ...]:
        """All sequences, in their order."""
        batch = range(self.batch)
        if not isinstance(self.start_pos, np.ndarray):
            return tuple(
                PrefillSequence(index, 0, self.seq_len, self.start_pos, self.keys)
                for index in batch
            )
        rows, keys = np.full(self.batch, self.seq_len), self.kv_lengths
        offsets = np.zeros(self.batch + 1, np.int32) if self.q_offsets is None else self.q_offsets
        if self.config.ragged:
            rows = np.diff(offsets)
        if keys is None:
            keys = np.diff(_there(self.kv_offsets))
        return tuple(
            PrefillSequence(b, int(offsets[b]), int(rows[b]), int(self.start_pos[b]), int(keys[b]))
            for b in batch
        )

    def queries(self, sequence: PrefillSequence, rows: npt.NDArray[np.int64], head: int) -> Any:
        """[rows, depth]: some local rows of a sequence."""
        if self.config.ragged:
            return self.q[sequence.first_row + rows, head]
        return self.q[sequence.index, rows, head]

    def gathered(self, sequence: PrefillSequence, tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The rows of one sequence's keys in a tensor of keys, in their order: [keys, ...]."""
        if self.config.page_size:
            pages = _there(self.page_table)[sequence.index, : self.config.pages(sequence.keys)]
            return tensor[pages].reshape(-1, *tensor.shape[2:])[: sequence.keys]
        if self.config.ragged:
            first = int(_there(self.kv_offsets)[sequence.index])
            return tensor[first : first + sequence.keys]
        return tensor[sequence.index, : sequence.keys]

    def key_rows(self, sequence: PrefillSequence, kv_head: int) -> tuple[Any, Any]:
        """The keys and the values of a sequence, [keys, qk_width] and [keys, v_width], in their
        order."""
        raise NotImplementedError

    def key_tensors(self) -> Mapping[str, npt.NDArray[Any]]:
        """The tensors that hold keys and values, by name."""
        return {name: getattr(self, name) for name in self.config.key_shapes}

    def _check_scales(self) -> None:
        """ConfigError for scales that no kernel, or not this one, takes."""
        given = (self.scale, self.q_scale, self.k_scale, self.v_scale)
        for name, value in asdict(checked_scales(self.config, *given)).items():
            object.__setattr__(self, name, value)

    @property
    def arithmetic(self) -> Arithmetic:
        """What the kernel computes with, for the oracles."""
        return arithmetic_of(self.config.dtype)

    @property
    def score_scale(self) -> float:
        """What takes dot products of the stored Q and K to natural units."""
        return CallScales(self.scale, self.q_scale, self.k_scale, self.v_scale).score_scale

    def sink_of(self, head: int) -> float:
        """The head's sink in natural units; -inf where there is none."""
        return -math.inf

    # ---- outputs ----------------------------------------------------------------------------

    @property
    def lse_shape(self) -> tuple[int, ...]:
        """[batch, num_heads, seq_len], or [num_heads, rows] where ragged."""
        heads = self.config.num_heads
        if self.config.ragged:
            return (heads, int(self.q.shape[0]))
        return (self.batch, heads, self.seq_len)

    def output_view(self, output: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """An output as oracles see it: [batch, rows, heads, depth], packed rows as one entry."""
        return output[None] if self.config.ragged else output

    def lse_view(self, lse: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """An LSE as oracles see it: [batch, rows, heads, 1], packed rows as one entry."""
        if lse.shape != self.lse_shape or lse.dtype != np.float32:
            raise ConfigError(
                f"lse has shape {lse.shape} and dtype {lse.dtype}, not {self.lse_shape} of float32"
            )
        return (lse[None] if self.config.ragged else lse).transpose(0, 2, 1)[..., None]

    # ---- choices ----------------------------------------------------------------------------

    def rows(self, rows: Sequence[int] | None) -> npt.NDArray[np.int64]:
        """Query rows, ascending and without repeats; None: all. Rows of each sequence, or packed
        rows where ragged. ConfigError: no such row."""
        return _chosen("row", rows, self.q.shape[0] if self.config.ragged else self.seq_len)

    def heads(self, heads: Sequence[int] | None) -> npt.NDArray[np.int64]:
        """Query heads, ascending and without repeats; None: all. ConfigError: no such head."""
        return _chosen("head", heads, self.config.num_heads)


def _there(array: Ints | None) -> Ints:
    """An array that the form has: to readers and to mypy."""
    assert array is not None
    return array


def _chosen(what: str, chosen: Sequence[int] | None, count: int) -> npt.NDArray[np.int64]:
    if chosen is None:
        return np.arange(count)
    unique = np.unique(np.asarray(chosen, dtype=np.int64))
    if unique.size == 0 or unique[0] < 0 or unique[-1] >= count:
        raise ConfigError(f"{what}s {list(chosen)} are not all in 0 .. {count - 1}")
    return unique
