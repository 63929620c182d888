"""Sparse MLA kernels as functions: tensors in; output, log-sum-exp and largest scores out."""

from __future__ import annotations

from typing import Any

from mlagen.artifact import Artifact
from mlagen.attention.latent.block_sizes import TOGETHER
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.unit import MERGE_KERNELS, cannot_put_together
from mlagen.families.mla_sparse.base_kernel import (
    MlaSparseKernel,
    MlaSparseRun,
    PreparedMlaSparse,
    stream_of,
)
from mlagen.families.mla_sparse.call import (
    DECODE_TENSORS,
    PREFILL_TENSORS,
    SparseCall,
    takes_decode,
    takes_prefill,
)
from mlagen.families.mla_sparse.checked import Checked
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.kept import Kept
from mlagen.families.mla_sparse.paging import split_numbers
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.splits import (
    blocks_an_sm,
    by_bulk,
    check_together,
    groups_of,
    parts_of,
    split_every,
)
from mlagen.family.base import Builder
from mlagen.launch import Launcher


class MlaSparsePrefillKernel(MlaSparseKernel):
    """A built sparse prefill kernel. `kernel(q, cache, indices, scale=..)` runs it, on the GPU that
    holds the tensors unless a launcher says otherwise; arrays of numpy are emulated."""

    problem, names, leading = MlaSparsePrefillConfig, PREFILL_TENSORS, 1

    @takes_prefill
    def __call__(self, call: SparseCall) -> tuple[Any, Any, Any]:
        """Attention of `q` over listed rows: (output, log-sum-exp, largest scores). See `run`."""
        out, lse, max_logits = self.enqueue(call)
        return out, lse, max_logits

    @takes_prefill
    def run(self, call: SparseCall) -> MlaSparseRun:
        """Attention of `q` over the rows of a cache that each query's list names.

        `q` [rows, H, d_qk] bf16 or e4m3, contiguous: kernels take its rows one after another.
        `cache` [pages, page_size, columns], or [pages, page_size, 1, columns], or [rows, columns]
        for one page: bf16 or e4m3 as the problem's `rows` say, with any strides of pages and rows
        that are multiples of 16 bytes. `indices` int32 [rows, topk], page * page_size + place; any
        other number names nothing. Lists may lie any distance apart. `topk_length` int32 [rows]:
        places that count, all without it. `sink` fp32 [H]: scores that add to the denominator of
        the output alone. `kv_scales` fp32: beside the cache where the format has them; `kv_scale`,
        `q_scale`: what e4m3 rows without scales of their own, and e4m3 queries, are multiples of.
        `scale` multiplies the dot products. All lie on one GPU, or are arrays of numpy, which are
        emulated: findings are left in the reports.

        `out` [rows, H, 512] bf16, `lse` and `max_logits` [rows, H] fp32, in natural units and
        without the sink, are written to and returned. They are made where they are not given, which
        torch's tensors and numpy's arrays allow. A query without keys has 0, `empty_lse` ("-inf" or
        "+inf") and -inf. `checked` copies lists and scales to the host first, waiting for the GPU,
        and refuses sinks that are NaN and scales, of rows that lists name, that are not finite or
        are negative; so is always done for arrays of the host.

        Raises ConfigError for tensors and numbers that the kernel cannot serve, before anything is
        launched.
        """
        return self._run(call)

    @takes_prefill
    def prepare(self, call: SparseCall) -> PreparedMlaSparse:
        """The same call, checked and packed but not launched."""
        return self._prepare(call)

    def _given(
        self, call: SparseCall, found: Checked, tensors: dict[str, Any], kept: Kept
    ) -> list[tuple[Artifact, dict[str, Any]]]:
        units = found.queries * groups_of(self.config.num_heads, self._facts.rows)
        # A grid is units, or blocks that take these in turn.
        sizes = {"units": units, "blocks": min(self._sms_of(tensors["q"]), units)}
        return [self._own(tensors, {**found.numbers, "units": units}, sizes)]


class MlaSparseDecodeKernel(MlaSparseKernel):
    """A built sparse decode kernel. `kernel(q, cache, indices, scale=..)` runs it, on the GPU that
    holds the tensors unless a launcher says otherwise; arrays of numpy are emulated.

    Its `build` makes the kernel that merges split work, when a call first splits; without it no
    call does.
    """

    problem, names, leading = MlaSparseDecodeConfig, DECODE_TENSORS, 2

    def __init__(self, artifact: Artifact, launcher: Launcher | None = None, **more: Any) -> None:
        super().__init__(artifact, launcher, **more)
        self._merges: dict[bool, Artifact] = {}
        self._puts_together = self._facts.together > 1

    @takes_decode
    def __call__(self, call: SparseCall) -> tuple[Any, Any]:
        """Attention of `q` over listed rows: (output, log-sum-exp). See `run`."""
        out, lse = self.enqueue(call)
        return out, lse

    @takes_decode
    def run(self, call: SparseCall) -> MlaSparseRun:
        """Attention of new tokens over the rows of a cache that each one's list names.

        As `MlaSparsePrefillKernel.run`, with `q` [batch, q_len, H, d_qk], `indices` [batch, q_len,
        topk], or [batch, topk] where the problem has `shared_list`, and `topk_length` int32
        [batch]. Where it is `causal`, `positions` int32, shaped and laid out as `indices`, and
        `first_position` int32 [batch]: token j sees keys whose position is at most the first one's
        plus j. Where it has a second cache, `extra_cache`, `extra_indices`, and if wanted
        `extra_topk_length` and `extra_kv_scales`.

        `out` [batch, q_len, H, 512] bf16 and `lse` [batch, H, q_len] fp32. `splits`: parts that the
        keys of each query are divided into; without it, as many as shapes and SMs suggest.
        `split_keys`: instead of it, as many as lists have so many keys, a multiple of 64: then a
        query's bits depend on its own lists and their extents, and on no batch and no GPU.
        `together`: the blocks of up to 32 heads put parts together without a second launch where
        they are a power of two up to 32; 1: the merge kernel does. Calls of one stream share the
        room that parts are left in: two that may run at the same time take two streams.
        """
        return self._run(call)

    @takes_decode
    def prepare(self, call: SparseCall) -> PreparedMlaSparse:
        """The same call, checked and packed but not launched. It keeps to the room of the stream in
        which it was prepared."""
        return self._prepare(call)

    def _given(
        self, call: SparseCall, found: Checked, tensors: dict[str, Any], kept: Kept
    ) -> list[tuple[Artifact, dict[str, Any]]]:
        rows = self._facts.rows
        units = found.queries * groups_of(self.config.num_heads, rows)
        splits, together = self._splits(call, found, units)
        slots = units * splits if splits > 1 else 1
        stream = stream_of(tensors["q"])
        parts = kept.partials(slots, rows, stream)
        tensors |= parts
        numbers = {**found.numbers, **split_numbers(splits), "together": 0}
        numbers["bulk"] = by_bulk(units * splits, self._sms_of(tensors["q"]))
        if together > 1:
            tensors["arrivals"], numbers["together"] = kept.arrivals(slots, stream), together
        elif self._puts_together:
            tensors["arrivals"] = kept.arrivals(1, stream)
        sizes = {"blocks": units * splits, "units": units, "splits": splits}
        own = self._own(tensors, numbers, sizes)
        if splits == together:
            return [own]
        heads, q_len = self.config.num_heads, self.config.q_len
        # The merge without sinks writes -inf for a query without keys.
        plain = call.tensors[self.names.index("sink")] is None and call.empty_lse == "-inf"
        table = kept.merges(found.entries, q_len, heads, splits, rows)
        second = self._merge_artifact(sink=not plain)
        args = second.manifest.args
        of_merge = {
            "lse_stride": q_len, "slot_rows": rows, "empty_lse": numbers["empty_lse"]
        }  # fmt: skip
        given = {**tensors, "merges": table}
        merge = {
            "tensors": {arg.tensor: given[arg.tensor] for arg in args if arg.tensor},
            "scalars": {arg.name: of_merge[arg.name] for arg in args if not arg.tensor},
            "sizes": {"merges": int(table.shape[0])},
        }  # fmt: skip
        return [own, (second, merge)]

    def _splits(self, call: SparseCall, found: Checked, units: int) -> tuple[int, int]:
        """Parts of each query's keys, and how many of them their blocks put together: all, or 1,
        where the merge kernel does."""
        splits, together = call.splits, call.together
        if call.split_keys is not None:
            splits = split_every(call.split_keys, found.tiles, splits)
        blocks, merges = self._puts_together, self._build is not None
        if together not in (None, 1) and not blocks:
            raise cannot_put_together(together)
        if splits is None and together in (None, 1):
            sms, threads = self._sms_of(call.tensors[0]), self.artifact.manifest.block[0]
            return parts_of(
                units, found.tiles, sms, blocks_an_sm(threads), merges=merges,
                blocks=blocks and together is None, heads=self.config.num_heads,
                rows=self.config.rows,
            )  # fmt: skip
        splits = together if splits is None else splits
        assert splits is not None
        if not 1 <= splits <= found.tiles:
            raise ConfigError(
                f"splits={splits} of lists of {found.tiles} tiles of 64 keys",
                hint=f"splits is in 1 .. {found.tiles}, or left out",
            )
        if together is None:
            together = splits if blocks and splits in TOGETHER else 1
        check_together(together, splits)
        if splits > together and not merges:
            raise ConfigError(
                f"splits={splits}: this kernel has no merge kernel beside it",
                hint=f"mlagen.build('{self.artifact.manifest.kernel}', ..) brings it",
            )
        return splits, together

    def _merge_artifact(self, *, sink: bool) -> Artifact:
        if sink not in self._merges:
            assert self._build is not None  # without it nothing is split
            fields: dict[str, Any] = {"num_heads": self.config.num_heads}
            if sink:
                fields["sink"] = True
            name = MERGE_KERNELS[self.artifact.manifest.target]
            self._merges[sink] = self._build(name, fields)
        return self._merges[sink]


def sparse_kernel(
    artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
) -> MlaSparsePrefillKernel | MlaSparseDecodeKernel:
    """The artifact as the callable of its problem."""
    if artifact.manifest.problem_type == MlaSparsePrefillConfig.__name__:
        return MlaSparsePrefillKernel(artifact, launcher, build=build)
    return MlaSparseDecodeKernel(artifact, launcher, build=build)
