"""What sparse MLA kernels have in common as functions: where calls run, what they share, which are
known from before."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mlagen.artifact import Artifact
from mlagen.attention.latent.call_tensors import HostMemory, Memory, TorchMemory, own_tensors
from mlagen.attention.latent.facts import facts_of
from mlagen.attention.latent.known_calls import Key, KnownCalls
from mlagen.attention.latent.outputs import OutputMaker, Outputs
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.unit import SMS
from mlagen.families.mla_sparse.call import SparseCall
from mlagen.families.mla_sparse.checked import Checked, checked, output_shapes
from mlagen.families.mla_sparse.kept import Kept
from mlagen.family.base import Builder
from mlagen.launch import EmulatedLauncher, Launcher, LaunchReport, gpu_launcher
from mlagen.launch.device_tensor import is_torch
from mlagen.launch.gpu import GpuLauncher, PreparedLaunch, torch_stream
from mlagen.launch_findings import findings_error, findings_of

HOST = "cpu"  # the device of arrays of numpy


@dataclass(frozen=True, slots=True)
class MlaSparseRun:
    """What one call wrote: output, log-sum-exp and, of prefill, largest scores (None of decode);
    and what its launches reported, none for an empty call."""

    output: Any
    lse: Any
    max_logits: Any
    reports: tuple[LaunchReport, ...]


@dataclass(frozen=True, slots=True, eq=False)
class OneLaunch:
    """A launch of a launcher that prepares none, with all that it is given."""

    launcher: Launcher
    artifact: Artifact
    given: Mapping[str, Any]

    def __call__(self) -> LaunchReport:
        return self.launcher.launch(self.artifact, **self.given)


Launch = OneLaunch | PreparedLaunch


@dataclass(frozen=True, slots=True, eq=False)
class MadeCall:
    """Launches of which none has happened, and what they write."""

    launches: tuple[Launch, ...]
    outputs: tuple[Any, ...]
    splits: int = 1
    partials: tuple[Any, ...] = ()
    own: tuple[list[Any], ...] = ()  # of each launch: tensors that are not the call's

    def graphs_keep_own(self) -> None:
        """Graphs keep of each launch what is not the call's."""
        for launch, own in zip(self.launches, self.own, strict=True):
            if isinstance(launch, PreparedLaunch):
                launch.graphs_keep(own)


class PreparedMlaSparse:
    """One call with all its arguments checked and packed. Calling it enqueues its kernels and
    returns: nothing is looked at, allocated, copied or waited for, so that a graph can capture it.
    Arrays of numpy are emulated. `launches`: each kernel's own, the merge last. `max_logits`: None
    of decode. `splits`: parts that each query's keys are divided into; `partials`: where these are
    left, () where there is one."""

    __slots__ = ("launches", "lse", "max_logits", "output", "partials", "splits")

    def __init__(self, made: MadeCall) -> None:
        self.launches, self.splits, self.partials = made.launches, made.splits, made.partials
        self.output, self.lse, self.max_logits = (*made.outputs, None)[:3]

    def __call__(self) -> None:
        launched(self.launches)


def launched(launches: tuple[Launch, ...]) -> None:
    """Launches one after the other. FindingsError for what the emulator finds."""
    for launch in launches:
        report = launch()
        if report is not None:
            assert isinstance(launch, OneLaunch)
            if found := findings_of(launch.artifact, report):
                raise findings_error(launch.artifact, found)


class MlaSparseKernel:
    """A built kernel of sparse MLA.

    `build` makes the artifacts of other kernels that a call needs besides; `memory` is where
    tensors on a GPU come from that calls share, torch's if nothing else; `sms`: SMs to fill, those
    of the tensors' GPU if nothing else. Raises ConfigError for an artifact of another kind of
    problem.
    """

    problem: ClassVar[Any]
    names: ClassVar[tuple[str, ...]]  # of a call's tensors
    leading: ClassVar[int]  # dimensions of q before its heads
    choice = "given"  # whose knobs it has: see `mlagen.build`

    def __init__(
        self,
        artifact: Artifact,
        launcher: Launcher | None = None,
        *,
        build: Builder | None = None,
        memory: Memory | None = None,
        sms: int | None = None,
    ) -> None:
        manifest = artifact.manifest
        if manifest.problem_type != self.problem.__name__:
            raise ConfigError(
                f"{manifest.kernel} solves a {manifest.problem_type}, not an "
                f"{self.problem.__name__}"
            )
        self.artifact = artifact
        self.config: Any = self.problem.from_fields(manifest.problem)
        usual = launcher if launcher is not None else gpu_launcher(manifest.target)
        self.launcher: Launcher = usual
        self._on_host: Launcher = launcher if launcher is not None else EmulatedLauncher()
        self._grid = tuple(each.size for each in manifest.grid)
        self._build, self._memory, self._own_sms = build, memory, sms
        self._facts = facts_of(manifest)
        self._kept: dict[str, Kept] = {}
        self._sms: dict[str, int] = {}
        self._streams: dict[int, Callable[[], int]] = {}
        self._known = KnownCalls()
        self._prepares = isinstance(self.launcher, GpuLauncher)
        self._maker: OutputMaker | None = None
        self._outputs = self._outputs_of((0,) * self.leading)  # of the last call that had none

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value}" for name, value in self.config.to_fields().items())
        return f"{type(self).__name__}({self.artifact.manifest.kernel}: {fields})"

    def enqueue(self, call: SparseCall) -> tuple[Any, ...]:
        """A call with all arguments together. FindingsError for what the emulator finds."""
        launches, outputs = self._bound(call)
        launched(launches)
        return outputs

    def _run(self, call: SparseCall) -> MlaSparseRun:
        launches, outputs = self._bound(call)
        reports = []
        for launch in launches:
            started = time.perf_counter()
            report = launch()
            if report is None:
                assert isinstance(launch, PreparedLaunch)
                assert isinstance(self.launcher, GpuLauncher)
                seconds = time.perf_counter() - started
                report = LaunchReport(self.launcher.kind, launch.grid, launch.block, seconds)
            reports.append(report)
        output, lse, max_logits = (*outputs, None)[:3]
        return MlaSparseRun(output, lse, max_logits, tuple(reports))

    def _prepare(self, call: SparseCall) -> PreparedMlaSparse:
        return PreparedMlaSparse(self._made(call))

    def _bound(self, call: SparseCall) -> tuple[tuple[Launch, ...], tuple[Any, ...]]:
        """A call's launches and its outputs: those of an equal call before, or all checked."""
        remember = None
        if not call.checked:
            known, remember, call = self._like_before(call)
            if known is not None:
                return known, call.outputs
        made = self._made(call)
        made.graphs_keep_own()
        if remember is not None and made.launches:
            prepared = tuple(one for one in made.launches if isinstance(one, PreparedLaunch))
            self._known.add(*remember, prepared)
        return made.launches, made.outputs

    def _made(self, call: SparseCall) -> MadeCall:
        """The call, all checked."""
        found = checked(self.config, self.names, call)
        if not found.queries:
            return MadeCall((), found.outputs)
        kept = self._kept_for(call.tensors[0])
        tensors = dict(found.tensors)
        lists = ("", "extra_") if "extra_cache" in tensors else ("",)
        for prefix in lists:
            if f"{prefix}topk_length" not in tensors:
                tensors[f"{prefix}topk_length"] = kept.lengths(found.entries)
        if "sink" not in tensors:
            tensors["sink"] = kept.no_sink(self.config.num_heads)
        tensors["zeros"] = kept.zeros(self.config.d_qk)
        launcher = self._on_host if found.host else self.launcher
        launches: list[Launch] = []
        theirs = (*found.tensors.values(), *found.outputs)
        all_given = self._given(call, found, tensors, kept)
        for artifact, given in all_given:
            if isinstance(launcher, GpuLauncher):
                launches.append(launcher.prepare(artifact, **given))
            else:
                launches.append(OneLaunch(launcher, artifact, given))
        own = all_given[0][1]
        splits = int(own["scalars"].get("splits", 1))
        names = ("partial_o", "partial_lse") if splits > 1 else ()
        partials = tuple(own["tensors"][name] for name in names)
        own_ones = tuple(own_tensors(given["tensors"], theirs) for _, given in all_given)
        return MadeCall(tuple(launches), found.outputs, splits, partials, own_ones)

    def _given(
        self, call: SparseCall, found: Checked, tensors: dict[str, Any], kept: Kept
    ) -> list[tuple[Artifact, dict[str, Any]]]:
        """What launchers are given, kernel by kernel."""
        raise NotImplementedError

    def _own(
        self, tensors: Mapping[str, Any], numbers: Mapping[str, int | float],
        sizes: Mapping[str, int],
    ) -> tuple[Artifact, dict[str, Any]]:  # fmt: skip
        """What the launcher of this kernel is given; `sizes` of all kinds of grids."""
        args = self.artifact.manifest.args
        return self.artifact, {
            "tensors": {arg.tensor: tensors[arg.tensor] for arg in args if arg.tensor},
            "scalars": {arg.name: numbers[arg.name] for arg in args if not arg.tensor},
            "sizes": {name: sizes[name] for name in self._grid},
        }

    # ---- what calls share -------------------------------------------------------------------

    def _kept_for(self, q: Any) -> Kept:
        device = _device(q)
        if device not in self._kept:
            memory = self._memory
            if device == HOST:
                memory = HostMemory()
            elif memory is None:
                memory = TorchMemory(q.device)
            self._kept[device] = Kept(memory)
        return self._kept[device]

    def _sms_of(self, q: Any) -> int:
        """SMs, or CUs, of the GPU that holds `q`; for arrays of the host those of an H200, or of an
        MI355X."""
        if self._own_sms is not None:
            return self._own_sms
        device = _device(q)
        if device not in self._sms:
            count = SMS[self.artifact.manifest.target]
            if is_torch(q):
                properties = sys.modules["torch"].cuda.get_device_properties(q.device)
                count = int(properties.multi_processor_count)
            self._sms[device] = count
        return self._sms[device]

    # ---- calls like earlier ones ------------------------------------------------------------

    def _like_before(
        self, call: SparseCall
    ) -> tuple[tuple[PreparedLaunch, ...] | None, tuple[Key, tuple[Any, ...]] | None, SparseCall]:
        """What an equal call before launched, if there was one; how to remember this one, if that
        can be; and the call with its outputs, which are made where they are missing."""
        torch, q = sys.modules.get("torch"), call.tensors[0]
        a, b, c = call.scales
        if (
            torch is None or not self._prepares
            or not isinstance(q, torch.Tensor) or not q.is_cuda
            or not type(a) is type(b) is type(c) is float
        ):  # fmt: skip
            return None, None, call
        outputs = call.outputs
        made = tuple([x is None for x in outputs])
        looked_at = [x for x in call.tensors if x is not None]
        if True in made:
            looked_at += [x for x in outputs if x is not None]
            outputs = self._filled(torch, q, outputs)
            call = SparseCall(call.tensors, outputs, *call[2:])
        else:
            looked_at += outputs
        device = q.get_device()
        if (stream := self._streams.get(device)) is None:
            stream = self._streams[device] = torch_stream(torch, device)
        try:
            key = (
                *[None if x is None else x.data_ptr() for x in call.tensors],
                *[None if x is None else x.data_ptr() for x in outputs],
                made, *call[2:], stream(),
            )  # fmt: skip
        except AttributeError:  # another library's tensor
            return None, None, call
        return self._known.find(key, looked_at), (key, tuple(looked_at)), call

    def _outputs_of(self, rows: tuple[int, ...]) -> tuple[tuple[int, ...], Outputs]:
        """These rows, and the outputs of calls with them."""
        (o, _), (log, _), *_ = output_shapes(self.config, rows)
        return rows, Outputs.contiguous(o, log)

    def _filled(self, torch: Any, q: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """The outputs, those made that are None; none are where `q` has not the dimensions of a
        query, which is told later."""
        rows = tuple(q.shape[:-2])
        if len(rows) != self.leading:
            return given
        before, outputs = self._outputs
        if before != rows:
            self._outputs = _, outputs = self._outputs_of(rows)
        if self._maker is None:
            self._maker = OutputMaker(torch, getattr(self.launcher, "stream", None))
        out, lse, *most = given
        out, lse = self._maker(q, outputs, out, lse)
        if not most:
            return out, lse
        # Largest scores have the shape of the LSE.
        return out, lse, self._maker(q, outputs, out, most[0])[1]


def _device(q: Any) -> str:
    return HOST if isinstance(q, np.ndarray) else str(getattr(q, "device", ""))


def stream_of(q: Any) -> int | None:
    """torch's current stream where `q` is; None for another library's tensor."""
    return torch_stream(sys.modules["torch"], q.get_device())() if is_torch(q) else None
