"""Who is right: contenders' outputs against the oracles, on some sequences and heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.order import SEESAW, Order
from mlagen.bench.accuracy import PEER_LIMIT, outside, relative
from mlagen.families.mla_decode.benchmark.work import DecodeCase
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.rounded import rounded
from mlagen.family.benchmark import Judgement
from mlagen.problem.expected import compare

Array = npt.NDArray[Any]


def outside_oracles(inputs: MlaDecodeInputs, output: Array, lse: Array, **some: Any) -> str:
    """What of O and LSE is outside the bounds of either oracle; `some`: heads, splits and the
    kernel's order."""
    expected = (oracle(inputs, **some) for oracle in (exact, rounded))
    found = ((compare(x.output, output), compare_lse(x.lse, lse)) for x in expected)
    return outside(*chain.from_iterable(found))


class DecodeJudge:
    """The longest and the last sequence of a case, their first and last heads, on the host.
    `host`: copies a tensor there. `order`: the kernel's."""

    def __init__(
        self, case: DecodeCase, host: Callable[[Any], Array], order: Order = SEESAW
    ) -> None:
        self.case, self.host, self.order = case, host, order
        config, lengths = case.work.config, case.work.lengths
        longest = int(np.argmax(lengths))
        self.sequences = sorted({longest, len(lengths) - 1})
        self.heads = sorted({0, config.num_heads - 1})
        table = host(case.table[self.sequences])
        # A pool of the judged sequences' pages alone: the whole one may have a hundred gigabytes.
        used = [table[i, : config.pages(lengths[b])] for i, b in enumerate(self.sequences)]
        every = np.concatenate(used)
        own = np.zeros_like(table)
        start = 0
        for i, pages in enumerate(used):
            own[i, : len(pages)] = np.arange(start, start + len(pages))
            start += len(pages)
        scales = case.scales
        if case.kv_scales is not None:
            scales["kv_scales"] = host(case.kv_scales[every.tolist()])
        if case.q_scales is not None:
            scales["q_scales"] = host(case.q_scales[self.sequences])
        self.inputs = MlaDecodeInputs(
            config,
            host(case.q[self.sequences]),
            host(case.cache[every.tolist()]),
            own,
            np.array([lengths[b] for b in self.sequences], np.int32),
            **scales,
        )
        self.expected = exact(self.inputs, heads=self.heads, order=order)

    def ours(self, output: tuple[Any, Any, tuple[tuple[int, ...], ...]]) -> Judgement:
        """O and LSE, in the splits that they were computed with, within the bounds of both
        oracles."""
        out, lse, splits = output
        own = tuple(splits[b] for b in self.sequences)
        o, log = self._own(out), self._own(lse)
        wrong = outside_oracles(self.inputs, o, log, heads=self.heads, splits=own, order=self.order)
        return replace(relative(self.expected.output, o), wrong=wrong)

    def peer(self, output: Any) -> Judgement:
        """A relative error of O below `PEER_LIMIT`."""
        limit = PEER_LIMIT[self.case.work.config.cache_element]
        return relative(self.expected.output, self._own(output), limit)

    def _own(self, tensor: Any) -> Array:
        return self.host(tensor[self.sequences])
