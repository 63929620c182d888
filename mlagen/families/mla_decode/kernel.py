"""An MLA decode kernel as a function: tensors in, output and log-sum-exp out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mlagen.artifact import Artifact
from mlagen.attention.latent.call_tensors import (
    HostMemory,
    Memory,
    TorchMemory,
    Workspace,
    as_host,
    check,
    check_rows,
    made,
    overlap,
    own_tensors,
)
from mlagen.attention.latent.facts import facts_of
from mlagen.attention.latent.known_calls import Key, KnownCalls
from mlagen.attention.latent.outputs import OutputMaker, Outputs
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.call import TENSORS, DecodeCall, takes_call
from mlagen.families.mla_decode.device_plan import Dealt, MlaDecodePlan, PlanTensors, make_plan
from mlagen.families.mla_decode.inputs import check_pages, check_stored, require_row_scales
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.unit import (
    MERGE_KERNELS,
    cannot_put_together,
    unit_of,
)
from mlagen.family.base import Builder
from mlagen.launch import EmulatedLauncher, Launcher, LaunchReport, gpu_launcher
from mlagen.launch.device_tensor import is_torch, on_the_host
from mlagen.launch.gpu import GpuLauncher, PreparedLaunch, torch_stream
from mlagen.launch_findings import findings_error, findings_of
from mlagen.problem.formats import scale_log2e

UNSPLIT = 2**31 - 64  # keys of a split that no sequence is longer than
HOST = "cpu"  # the device of arrays of numpy
Launch = tuple[Artifact, dict[str, Any]]  # what a launcher takes: `launch(artifact, **given)`


@dataclass(frozen=True, slots=True)
class MlaDecodeRun:
    """One call's output [batch, q_len, num_heads, 512], its log-sum-exp [batch, num_heads, q_len]
    (natural logarithm, -inf for a row without keys), and what its launches reported; none for an
    empty batch. Where q is packed: [tokens, num_heads, 512] and [num_heads, tokens]."""

    output: Any
    lse: Any
    reports: tuple[LaunchReport, ...]


class PreparedMlaDecode:
    """One call with all its arguments checked and packed. Calling it enqueues its kernels and
    returns: nothing is allocated, copied or waited for, so that a graph can capture it.
    `launches`: each kernel's own, the merge last."""

    __slots__ = ("launches", "lse", "output")

    def __init__(self, launches: tuple[Callable[[], None], ...], output: Any, lse: Any) -> None:
        self.launches, self.output, self.lse = launches, output, lse

    def __call__(self) -> None:
        for launch in self.launches:
            launch()


class MlaDecodeKernel:
    """A built MLA decode kernel. `kernel(q, cache, block_table, cache_lengths, scale=..)` runs it,
    on the GPU that holds the tensors unless a launcher says otherwise; arrays of numpy are
    emulated.

    `merge` builds the kernel that merges split work, when a plan first needs it; `memory` is where
    plans' tensors on a GPU come from, torch's if nothing else. Raises ConfigError for an artifact
    of another kind of problem.
    """

    choice = "given"  # whose knobs it has: see `mlagen.build`

    def __init__(
        self,
        artifact: Artifact,
        launcher: Launcher | None = None,
        *,
        merge: Callable[[], Artifact] | None = None,
        memory: Memory | None = None,
    ) -> None:
        manifest = artifact.manifest
        if manifest.problem_type != MlaDecodeConfig.__name__:
            raise ConfigError(
                f"{manifest.kernel} solves a {manifest.problem_type}, not an "
                f"{MlaDecodeConfig.__name__}"
            )
        self.artifact = artifact
        self.config = MlaDecodeConfig.from_fields(manifest.problem)
        usual = launcher if launcher is not None else gpu_launcher(manifest.target)
        self.launcher: Launcher = usual
        self._on_host: Launcher = launcher if launcher is not None else EmulatedLauncher()
        self._unit = unit_of(manifest)
        facts = facts_of(manifest)
        self._persistent = facts.items == "several"
        self._takes_in = facts.combine == "fix_up"
        self._puts_together = facts.combine == "blocks"
        self._build_merge, self._memory = merge, memory
        self._merge: Artifact | None = None
        self._plans: dict[Any, MlaDecodePlan] = {}
        self._workspaces: dict[Any, Workspace] = {}
        self._known = KnownCalls()
        self._prepares = isinstance(self.launcher, GpuLauncher)
        self._maker: OutputMaker | None = None
        self._outputs: dict[tuple[int, ...], Outputs] = {}

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value}" for name, value in self.config.to_fields().items())
        return f"MlaDecodeKernel({self.artifact.manifest.kernel}: {fields})"

    # ---- plans ------------------------------------------------------------------------------

    def plan(
        self,
        lengths: Sequence[int] | Any,
        *,
        device: Any = "cuda",
        q_lens: Sequence[int] | None = None,
        blocks: int | None = None,
        split_keys: int | None = None,
        room: Sequence[int] | Any | None = None,
        together: int | None = None,
        memory: Memory | None = None,
    ) -> MlaDecodePlan:
        """Deals out the work of calls with sequences of `lengths` keys and makes its tensors.

        All host work of a call that depends on its shape is here. A list or array is taken as it
        is; for a tensor of a GPU the call waits. `q_lens`: new tokens of each sequence, for a q
        packed as [tokens, num_heads, 576]. `blocks`: SMs, or compute units, to fill: 132 of an
        H200, 148 of a B200 and 256 of an MI355X if nothing else. `split_keys`: split every so many
        keys, a multiple of 64, instead of evenly; a row's bits are then the same whatever else is
        in the batch. `together`: parts of every row block, 2, 4, 8, 16 or 32, that their blocks put
        together without a second launch; 1: none; None: as the plan estimates. `room`: lengths that
        `plan.update` shall have tensors for. `memory`: where its tensors come from; `device="cpu"`:
        arrays of numpy, for calls with such arrays.

        Raises ConfigError for numbers that do not fit, and where split work has no merge kernel.
        """
        if together not in (None, 1) and not self._puts_together:
            raise cannot_put_together(together)
        if self._build_merge is None:
            if split_keys is not None:
                raise ConfigError(
                    f"split_keys={split_keys}: this kernel has no merge kernel beside it",
                    hint=f"mlagen.build('{self.artifact.manifest.kernel}', ..) brings it",
                )
            if self._persistent:
                split_keys = UNSPLIT
            else:
                blocks = 1  # where nothing runs at once, splitting never pays
        if memory is None:
            memory = self._memory_of(device)
        tokens = None if q_lens is None else tuple(int(n) for n in as_host("q_lens", q_lens))
        return make_plan(
            self.config,
            as_host("lengths", lengths),
            memory,
            self.enqueue,
            Dealt(
                tokens,
                self._unit.blocks if blocks is None else self._unit.filling(blocks),
                split_keys,
                self._persistent,
                self._takes_in,
                self._unit,
                together if self._puts_together else 1,
                self._takes_in or self._puts_together,
            ),
            None if room is None else as_host("room", room),
        )

    def _memory_of(self, device: Any) -> Memory:
        """Where tensors of a device come from."""
        if str(device) == HOST:
            return HostMemory()
        return self._memory if self._memory is not None else TorchMemory(device)

    def _usual_plan(self, q: Any, batch: int, max_pages: int) -> MlaDecodePlan:
        """The plan of a call that brings none: as if all sequences filled their table, about.

        Calls of one stream come one after the other and share a workspace; those of two may run at
        once. Lengths are taken an eighth of a power of two further, so that a table that grows with
        its sequences does not need a plan at every step.
        """
        host = isinstance(q, np.ndarray)
        device, stream = HOST if host else getattr(q, "device", None), _stream(q)
        step = 1 << max(max_pages.bit_length() - 4, 0)
        most = -(-max_pages // step) * step * self.config.page_size
        key = (batch, most, str(device), stream)
        if key not in self._plans:
            place = key[2:]
            if place not in self._workspaces:
                self._workspaces[place] = Workspace(self._memory_of(device))
            self._plans[key] = self.plan(
                [min(most, 2**31 - 1)] * batch, device=device, memory=self._workspaces[place]
            )
        return self._plans[key]

    # ---- calls ------------------------------------------------------------------------------

    @takes_call
    def __call__(self, call: DecodeCall) -> tuple[Any, Any]:
        """Attention of `q` over the paged cache: (output, log-sum-exp). See `run`."""
        return self.enqueue(call)

    def enqueue(self, call: DecodeCall) -> tuple[Any, Any]:
        """The same with all arguments together. FindingsError for what the emulator finds."""
        bound, launches, out, lse = self._bound(call)
        if bound is not None:
            for launch in bound:
                launch()
        else:
            for artifact, given in launches:
                report = self._launcher_of(call).launch(artifact, **given)
                if found := findings_of(artifact, report):
                    raise findings_error(artifact, found)
        return out, lse

    def _launcher_of(self, call: DecodeCall) -> Launcher:
        """What runs a call: the launcher that was given, or that of where its tensors are."""
        return self._on_host if isinstance(call.tensors[0], np.ndarray) else self.launcher

    @takes_call
    def run(self, call: DecodeCall) -> MlaDecodeRun:
        """Attention of `q` over the paged cache.

        `q` [B, q_len, H, 576], or [tokens, H, 576] with a plan that was made with `q_lens`, and
        `cache` [num_blocks, page_size, KV heads, 576], `block_table` [B, max_pages] and
        `cache_lengths` [B] int32, contiguous, on one GPU; see `MlaDecodeInputs`. Or all are arrays
        of numpy, which are emulated: findings are left in the reports. `scale` multiplies
        the dot products. It has no default: it is the model's (192 ** -0.5 for 128 + 64 columns a
        head), which the width 576 does not tell. `kv_scale` and `q_scale`: what numbers of an e4m3
        cache and of an e4m3 q are multiples of. Rope-aware rows: `cache` [num_blocks, page_size, 1,
        640] e4m3, and `kv_scales` [num_blocks, page_size] fp32, what each row is multiples of;
        rope-aware queries: `q` 640 wide, and `q_scales` [B, q_len] or [tokens] fp32.

        `out` like q but 512 wide, bf16, and `lse` [B, H, q_len] (or [H, tokens]) fp32 are written
        to and returned. They are made where they are not given, which torch's tensors and numpy's
        arrays allow. Without a `plan` the work is distributed as if all sequences filled their
        tables. `checked` copies the table and the lengths to the host first, waiting for the GPU,
        and refuses what leads out of the pool, as is always done for arrays of the host; without it
        the call waits for nothing, and what leads out of the pool is never read.

        Raises ConfigError for tensors and numbers that the kernel cannot serve, before anything is
        launched.
        """
        bound, launches, out, lse = self._bound(call)
        if bound is None:
            launcher = self._launcher_of(call)
            reports = [launcher.launch(artifact, **given) for artifact, given in launches]
            return MlaDecodeRun(out, lse, tuple(reports))
        assert isinstance(self.launcher, GpuLauncher)
        reports, kind = [], self.launcher.kind
        for launch in bound:
            started = time.perf_counter()
            launch()
            seconds = time.perf_counter() - started
            reports.append(LaunchReport(kind, launch.grid, launch.block, seconds))
        return MlaDecodeRun(out, lse, tuple(reports))

    def _bound(
        self, call: DecodeCall
    ) -> tuple[tuple[PreparedLaunch, ...] | None, list[Launch], Any, Any]:
        """A call's launches, all checked: prepared and remembered where that can be, else what the
        launcher is to be given; and the outputs."""
        remember = None
        if call.plan is not None and not isinstance(call.plan, PlanTensors):
            raise ConfigError(
                f"plan is a {type(call.plan).__name__}, not a plan",
                hint="kernel.plan(lengths, ..) makes one",
            )
        if not call.checked:
            known, remember, out, lse = self._like_before(call)
            if known is not None:
                return known, [], out, lse
            call = call._replace(out=out, lse=lse)
        out, lse, launches = self._launches(call)
        if not isinstance(self._launcher_of(call), GpuLauncher) or not launches:
            return None, launches, out, lse
        assert isinstance(self.launcher, GpuLauncher)
        theirs = (*call.tensors, out, lse)
        made = []
        for artifact, given in launches:
            made.append(self.launcher.prepare(artifact, **given))
            made[-1].graphs_keep(own_tensors(given["tensors"], theirs))
        if remember is not None:
            self._known.add(*remember, tuple(made))
        return tuple(made), [], out, lse

    def _like_before(
        self, call: DecodeCall
    ) -> tuple[tuple[PreparedLaunch, ...] | None, tuple[Key, tuple[Any, ...]] | None, Any, Any]:
        """What an equal call before launched, if there was one; how to remember this one, if that
        can be; and the outputs, which are made where they are missing."""
        tensors, scales, plan, out, lse, _ = call
        torch = sys.modules.get("torch")
        q, cache, block_table, cache_lengths, *more = tensors
        rank = 4 if plan is None or plan.tokens is None else 3
        a, b, c = scales
        if (
            torch is None or not self._prepares
            or not isinstance(q, torch.Tensor) or not q.is_cuda or q.dim() != rank
            or not type(a) is type(b) is type(c) is float
        ):  # fmt: skip
            return None, None, out, lse
        # Without a plan it is the usual one, which shapes, device and stream determine.
        of_plan = ("usual", _stream(q)) if plan is None else plan.key
        if of_plan is None or (plan is not None and plan.config is not self.config):
            return None, None, out, lse
        # Outputs that are made here are what they should be: they are not looked at.
        kind = out is None, lse is None
        looked_at = tensors if out is None else (*tensors, out)
        if lse is not None:
            looked_at = (*looked_at, lse)
        if out is None or lse is None:
            outputs = self._outputs_of(q) if plan is None else plan.outputs
            if self._maker is None:
                self._maker = OutputMaker(torch, getattr(self.launcher, "stream", None))
            out, lse = self._maker(q, outputs, out, lse)
        try:
            key: Key = (
                q.data_ptr(), cache.data_ptr(), block_table.data_ptr(), cache_lengths.data_ptr(),
                out.data_ptr(), lse.data_ptr(), kind, of_plan, scales,
            )  # fmt: skip
            if more:
                key += tuple(tensor.data_ptr() for tensor in more)
            return self._known.find(key, looked_at), (key, looked_at), out, lse
        except AttributeError:  # another library's tensor
            return None, None, out, lse

    def _outputs_of(self, q: Any) -> Outputs:
        """Of a call without a plan."""
        batch, q_len, *_ = q.shape
        found = self._outputs.get((batch, q_len))
        if found is None:
            found = self._outputs[batch, q_len] = Outputs.of(self.config, (batch, q_len))
        return found

    @takes_call
    def prepare(self, call: DecodeCall) -> PreparedMlaDecode:
        """The same call, checked and packed but not launched."""
        if isinstance(call.tensors[0], np.ndarray):
            raise ConfigError(
                "prepare: arrays of the host are emulated, call by call",
                hint="kernel(q, ..) runs them; tensors of a GPU are prepared",
            )
        output, log_sum, launches = self._launches(call)
        prepare: Any = self.launcher
        made = tuple(prepare.prepare(artifact, **given) for artifact, given in launches)
        return PreparedMlaDecode(made, output, log_sum)

    def _launches(self, call: DecodeCall) -> tuple[Any, Any, list[Launch]]:
        """Output, LSE and what is to be launched, all checked."""
        given, scales, plan, out, lse, checked = call
        config = self.config
        named = zip(TENSORS, given, strict=False)
        tensors = {name: tensor for name, tensor in named if tensor is not None}
        if lacking := [name for name in TENSORS[:4] if name not in tensors]:
            raise ConfigError(f"{', '.join(lacking)} is None; a call takes an array for each")
        written = {n: x for n, x in (("out", out), ("lse", lse)) if x is not None}
        q, cache, block_table, cache_lengths, *_ = given
        require_row_scales(config, tensors.get("kv_scales"), tensors.get("q_scales"))
        host = on_the_host({**tensors, **written})
        packed = plan is not None and plan.tokens is not None
        if len(q.shape) != (3 if packed else 4):
            wants = f"({'tokens' if packed else 'batch, q_len'}, num_heads, {config.q_columns})"
            raise ConfigError(f"q has shape {tuple(q.shape)}, the kernel wants {wants}")
        batch = plan.batch if packed and plan is not None else int(q.shape[0])
        rows = (plan.tokens,) if packed and plan is not None else (batch, config.q_len)
        heads, fp32 = config.num_heads, "fp32"
        wanted: dict[str, tuple[tuple[int | None, ...], str]] = {
            "q": ((*rows, heads, config.q_columns), config.q_element),
            "cache": ((None, config.page_size, config.num_kv_heads, config.cache_columns),
                      config.cache_element),
            "block_table": ((batch, None), "int32"),
            "cache_lengths": ((batch,), "int32"),
            "kv_scales": ((*tuple(cache.shape)[:1], config.page_size), fp32),
            "q_scales": (rows, fp32),
            "o": ((*rows, heads, config.d_v), config.output_dtype),
            "lse": ((heads, *rows) if packed else (batch, heads, config.q_len), fp32),
        }  # fmt: skip
        for name, tensor in tensors.items():
            check(name, tensor, *wanted[name])
        num_blocks, max_pages = int(cache.shape[0]), int(block_table.shape[1])
        check_rows("q", int(q.shape[0]), config.num_heads * (1 if packed else config.q_len))
        check_rows("cache", num_blocks, config.page_size)
        if plan is not None and (plan.config != config or plan.batch != batch):
            raise ConfigError(
                f"the plan is for {plan.batch} sequences of {plan.config}, the call has {batch} "
                f"of {config}",
                hint="kernel.plan(lengths, ..) of this kernel makes one",
            )
        for name, label, output in (("o", "out", out), ("lse", "lse", lse)):
            if output is None:
                output = made(label, q, *wanted[name])
            check(label, output, *wanted[name])
            for other, tensor in tensors.items():
                if overlap(output, tensor):
                    what = "out" if other == "o" else other
                    raise ConfigError(f"{label} overlaps {what} in memory", hint="pass another")
            tensors[name] = output
        scale, kv_scale, q_scale = check_stored(config, *scales)
        if (checked or host) and batch:
            check_pages(
                config,
                as_host("block_table", block_table),
                as_host("cache_lengths", cache_lengths),
                num_blocks,
            )
        output, log_sum = tensors["o"], tensors["lse"]
        if not batch or not int(q.shape[0]):
            return output, log_sum, []
        if plan is None:
            plan = self._usual_plan(q, batch, max_pages)
        numbers: dict[str, int | float] = {
            "max_pages": max_pages,
            "num_blocks": num_blocks,
            "lse_stride": plan.lse_stride,
            "scale_log2e": scale_log2e(scale * kv_scale * q_scale),
            "kv_scale": kv_scale,
        }
        return output, log_sum, self._of_plan(plan, tensors, numbers)

    def _of_plan(
        self, plan: PlanTensors, tensors: dict[str, Any], numbers: dict[str, int | float]
    ) -> list[Launch]:
        """The launches of a call with this plan, of all tensors and numbers that one may take."""
        if self._persistent is (plan.shares is None):
            raise ConfigError(
                f"the plan is {'not ' * self._persistent}for blocks that take several items",
                hint="kernel.plan(lengths, ..) of this kernel makes one",
            )
        rows = int(plan.partial_o.shape[1])
        if rows != self._unit.rows:
            raise ConfigError(
                f"the plan is for blocks of {rows} query rows, the kernel has {self._unit.rows}",
                hint="kernel.plan(lengths, ..) of this kernel makes one",
            )
        # Kernels count slots by one tensor: the others must have as many.
        slots, arrivals = int(plan.partial_lse.shape[0]), plan.arrivals
        if int(plan.partial_o.shape[0]) < slots or (
            arrivals is not None and int(arrivals.shape[0]) > 2 * slots
        ):
            raise ConfigError(
                f"the plan's partial_lse has {slots} slots, its partial_o "
                f"{int(plan.partial_o.shape[0])}, its arrivals "
                f"{0 if arrivals is None else int(arrivals.shape[0]) // 2}",
                hint="kernel.plan(lengths, ..) makes them fit each other",
            )
        work = {"partial_o": plan.partial_o, "partial_lse": plan.partial_lse}
        shares: dict[str, Any] = {}
        for name in ("shares", "arrivals"):
            if getattr(plan, name) is not None:
                shares[name] = getattr(plan, name)
        named = {arg.name for arg in self.artifact.manifest.args}
        given = {
            "tensors": {**tensors, "items": plan.items, **shares, **work},
            "scalars": {name: value for name, value in numbers.items() if name in named},
            "sizes": plan.grid(self._unit),
        }
        if plan.merges is None:
            return [(self.artifact, given)]
        second = self._merge_artifact()
        named = {"lse_stride", *(arg.name for arg in second.manifest.args)}
        of_merge = {"lse_stride": plan.lse_stride, "slot_rows": self._unit.rows}
        merge = {
            "tensors": {"merges": plan.merges, **work, "o": tensors["o"], "lse": tensors["lse"]},
            "scalars": {name: value for name, value in of_merge.items() if name in named},
            "sizes": {"merges": int(plan.merges.shape[0])},
        }
        return [(self.artifact, given), (second, merge)]

    def _merge_artifact(self) -> Artifact:
        if self._merge is None:
            assert self._build_merge is not None  # a plan without it splits nothing
            self._merge = self._build_merge()
        return self._merge


def decode_kernel(
    artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
) -> MlaDecodeKernel:
    """A `MlaDecodeKernel`, which builds the merge when a plan first splits work."""
    fields = {"num_heads": int(artifact.manifest.problem["num_heads"])}
    merge = None
    if build is not None:
        merge = partial(build, MERGE_KERNELS[artifact.manifest.target], fields)
    return MlaDecodeKernel(artifact, launcher, merge=merge)


def _stream(q: Any) -> int | None:
    """torch's current stream where `q` is; None for another library's tensor."""
    return torch_stream(sys.modules["torch"], q.get_device())() if is_torch(q) else None
