"""Lists of rows: which of their places count, and the keys that a kernel walks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.grains import grained, grains_of
from mlagen.attention.latent.order import Order
from mlagen.attention.latent.walk import Bools, Ints, Keys
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.pool import Pool
from mlagen.problem.formats import Floats


@dataclass(frozen=True, eq=False)
class RowList:
    """A list of rows of one cache, `indices` [topk], of which the first `length` places count
    (None: all). `positions` [topk] of keys, of which those up to `last` are seen; None: all are."""

    pool: Pool
    indices: npt.NDArray[Any]
    length: int | None = None
    positions: npt.NDArray[Any] | None = None
    last: float = math.inf

    @property
    def places(self) -> int:
        """Places of the list up to the length."""
        count = len(self.indices)
        return count if self.length is None else min(max(self.length, 0), count)

    @property
    def seen(self) -> Bools:
        """Which of these places hold a row that is seen, [places]. A kernel reads no other."""
        own = self.indices[: self.places]
        rows = np.asarray((own >= 0) & (own < self.pool.rows))
        if self.positions is None:
            return rows
        return np.asarray(rows & (self.positions[: self.places] <= self.last))

    @property
    def read(self) -> Ints:
        """The rows of these places, each once."""
        return np.unique(self.indices[: self.places][self.seen].astype(np.int64))


class ListedCall(Protocol):
    """A call with a list for each of `batch` times `tokens` query rows."""

    @property
    def batch(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    def parts(self, entry: int, token: int) -> tuple[RowList, ...]: ...


def check_read(call: ListedCall, most: float = math.inf) -> None:
    """ConfigError for a row that a query sees and whose scales are no scales, or above `most`."""
    read: dict[str, tuple[Pool, list[Ints]]] = {}
    for entry, token in np.ndindex(call.batch, call.tokens):
        for part in call.parts(entry, token):
            read.setdefault(part.pool.name, (part.pool, []))[1].append(part.read)
    for pool, found in read.values():
        if not pool.row.scales(pool.d_qk):
            continue
        rows = np.unique(np.concatenate(found))
        scales = pool.row_scales(rows)
        fits = np.isfinite(scales) & (scales >= 0) & (scales <= most)
        bad = np.flatnonzero(~fits.all(axis=1))
        if bad.size:
            wrong = scales[bad[0]][~fits[bad[0]]][0]
            limit = "" if math.isinf(most) else f" and at most {most:g}, with compute=fp8"
            raise ConfigError(
                f"row {rows[bad[0]]} of {pool.name} has the scale {wrong}, and a query sees it",
                hint=f"scales are finite and not negative{limit}, but for rows that no query sees",
            )


@dataclass(frozen=True, slots=True, eq=False)
class ListedKeys:
    """The keys of a query row in the order in which a kernel walks them: `kernel`, as it computes
    with them; `exact` [keys, columns] times their scales is what they are. `seen` [keys]."""

    kernel: Keys
    exact: Floats
    seen: Bools

    def computed(self, start: int, stop: int, order: Order) -> Keys:
        """The keys `start .. stop - 1` as a block that has these computes with them."""
        keys = self.kernel.within(start, stop)
        if not order.grained:
            return keys
        assert keys.of_columns is not None
        grains = grains_of(np.where(self.seen[start:stop, None], keys.of_columns, 0.0))
        numbers = grained(keys.stored, keys.of_columns, grains)
        return replace(keys, stored=numbers, of_columns=None, grains=grains)

    @property
    def rounded(self) -> bool:
        """Whether a kernel computes with other numbers than those that are stored."""
        return self.exact is not self.kernel.stored


def listed(parts: tuple[RowList, ...], tile: int, *, of_columns: bool = False) -> ListedKeys:
    """The keys of lists that follow each other, each but the last padded to whole tiles. What is no
    key is 0. `of_columns`: a kernel multiplies sums of columns by scales, and rounds no number.
    ConfigError where a key is not finite."""
    stored, exact, scales, seen, rows, columns = [], [], [], [], [], []
    scaled, offset = False, 0
    for part in parts:
        room = -(-part.places // tile) * tile if part is not parts[-1] else part.places
        at = np.flatnonzero(part.seen)
        own = part.indices[at].astype(np.int64)
        numbers = part.pool.numbers(own)
        used = numbers.exact if of_columns else numbers.bf16
        _check_finite(part, own, used)
        wide = np.zeros((room, part.pool.d_qk))
        wide[at] = used
        stored.append(wide)
        exact.append(wide)
        if numbers.exact is not used:
            exact[-1] = np.zeros(wide.shape)
            exact[-1][at] = numbers.exact
        each = np.ones(room)
        each[at] = numbers.scales
        scales.append(each)
        mark = np.zeros(room, np.bool_)
        mark[at] = True
        seen.append(mark)
        which = np.full(room, -1)
        which[at] = own + offset
        rows.append(which)
        offset += part.pool.rows
        scaled |= numbers.scaled
        if of_columns:
            each_group = part.pool.row_scales(own)
            columns.append(np.zeros((room, each_group.shape[1])))
            columns[-1][at] = each_group
    all_rows = np.concatenate(rows)
    all_seen = np.concatenate(seen)
    again = len(np.unique(all_rows[all_seen])) < all_seen.sum()
    whole = np.concatenate(stored)
    same = all(one is other for one, other in zip(exact, stored, strict=True))
    groups = np.concatenate(columns) if of_columns else None
    keys = Keys(whole, np.concatenate(scales), scaled, all_rows if again else None, groups)
    return ListedKeys(keys, whole if same else np.concatenate(exact), all_seen)


def _check_finite(part: RowList, rows: Ints, numbers: Floats) -> None:
    bad = np.flatnonzero(~np.isfinite(numbers).all(axis=1))
    if bad.size:
        raise ConfigError(
            f"row {rows[bad[0]]} of {part.pool.name} is not finite in bf16, and a query sees it: "
            f"nothing is expected of it"
        )
