"""Who is right: contenders' outputs against the oracles, on some sequences and heads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.bench.case import Case, Lab
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.rounded import rounded
from mlagen.problem import compare

# Relative errors that peers may have, as a norm: their arithmetic is not ours, so no bound of the
# oracles is theirs. P in bf16 gives some 2^-9, P in e4m3 some 2^-5.
PEER_LIMIT = {"bf16": 2.0**-7, "fp8_e4m3": 2.0**-4}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`error`: of O, |got - exact| / |exact| as norms. `wrong`: why it is not right, or ""."""

    error: float
    wrong: str = ""


class Judge:
    """The longest and the last sequence of a case, their first and last heads, on the host."""

    def __init__(self, case: Case, lab: Lab) -> None:
        self.case, self.lab = case, lab
        config, lengths = case.workload.config, case.workload.lengths
        longest = int(np.argmax(lengths))
        self.sequences = sorted({longest, len(lengths) - 1})
        self.heads = sorted({0, config.num_heads - 1})
        table = lab.host(case.table[self.sequences])
        # A pool of the judged sequences' pages alone: the whole one may have a hundred gigabytes.
        used = [table[i, : config.pages(lengths[b])] for i, b in enumerate(self.sequences)]
        order = np.concatenate(used)
        own = np.zeros_like(table)
        start = 0
        for i, pages in enumerate(used):
            own[i, : len(pages)] = np.arange(start, start + len(pages))
            start += len(pages)
        scales = case.scales
        if case.kv_scales is not None:
            scales["kv_scales"] = lab.host(case.kv_scales[order.tolist()])
        if case.q_scales is not None:
            scales["q_scales"] = lab.host(case.q_scales[self.sequences])
        self.inputs = MlaDecodeInputs(
            config,
            lab.host(case.q[self.sequences]),
            lab.host(case.cache[order.tolist()]),
            own,
            np.array([lengths[b] for b in self.sequences], np.int32),
            **scales,
        )
        self.expected = exact(self.inputs, heads=self.heads)

    def ours(self, out: Any, lse: Any, splits: tuple[tuple[int, ...], ...]) -> Verdict:
        """Within the bounds of both oracles, O and LSE."""
        own = tuple(splits[b] for b in self.sequences)
        o, log = self._own(out), self.lab.host(lse[self.sequences])
        wrong = []
        for oracle in (exact, rounded):
            expected = oracle(self.inputs, heads=self.heads, splits=own)
            for found in (compare(expected.output, o), compare_lse(expected.lse, log)):
                if not found.passed:
                    wrong.append(
                        f"{found.failures} of {found.elements} numbers ({found.nans} NaN) are "
                        f"outside the {found.oracle} oracle's bounds"
                    )
        return replace(self._error(o), wrong="; ".join(wrong))

    def peer(self, out: Any) -> Verdict:
        """A relative error below `PEER_LIMIT`."""
        verdict = self._error(self._own(out))
        limit = PEER_LIMIT[self.case.workload.config.cache_element]
        if verdict.wrong or verdict.error <= limit:
            return verdict
        return replace(verdict, wrong=f"its relative error is above {limit:.3g}")

    def _own(self, out: Any) -> npt.NDArray[Any]:
        return self.lab.host(out[self.sequences])

    def _error(self, out: npt.NDArray[Any]) -> Verdict:
        values = self.expected.output.values
        got = self.expected.output.select(out).astype(np.float64)
        nans = int(np.isnan(got).sum())
        if nans:
            return Verdict(float("inf"), f"{nans} of {got.size} numbers are NaN")
        norm = float(np.linalg.norm(values))
        return Verdict(float(np.linalg.norm(got - values)) / max(norm, 1e-300))
