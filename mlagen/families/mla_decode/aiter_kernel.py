"""A kernel of MLA decode with AITER's arguments as a function: AITER's tensors in, output and
log-sum-exp out. Work is AITER's too: nothing is planned here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mlagen.artifact import Artifact
from mlagen.attention.latent.call_tensors import (
    Memory,
    TorchMemory,
    as_host,
    check,
    made,
    overlap,
    own_tensors,
)
from mlagen.attention.latent.scales import check_scale
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.aiter_call import REDUCTION, TENSORS, AiterCall, takes_call
from mlagen.families.mla_decode.aiter_plan import aiter_numbers
from mlagen.families.mla_decode.aiter_run import table_of
from mlagen.families.mla_decode.aiter_work import (
    AiterShape,
    check_aiter_work,
    check_merging,
    check_page_list,
    check_table,
)
from mlagen.families.mla_decode.kernel import Launch, PreparedMlaDecode
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.family.base import Builder
from mlagen.launch import EmulatedLauncher, Launcher, LaunchReport, gpu_launcher
from mlagen.launch.device_tensor import device_tensor, on_the_host
from mlagen.launch.gpu import GpuLauncher
from mlagen.launch_findings import findings_error, findings_of

REDUCE_KERNEL = "mla_prefill_reduce"
REDUCE_COLUMNS = 128  # of a line, of which that kernel's grid has so many


class AiterDecodeRun(NamedTuple):
    """One call's output [tokens, H, 512], its log-sum-exp [tokens, H] (natural logarithm), partial
    outputs fp32 [rows, H, 512] and theirs [rows, H], and what its launches reported."""

    output: Any
    lse: Any
    partial_o: Any
    partial_lse: Any
    reports: tuple[LaunchReport, ...]


class AiterDecodeKernel:
    """A built MLA decode kernel that takes AITER's arguments (`arguments=aiter`).

    `reduce` builds the kernel that merges parts, when a call first brings AITER's arrays for it;
    `memory` is where small tensors on a GPU come from, torch's if nothing else.
    """

    choice = "given"  # whose knobs it has: see `mlagen.build`

    def __init__(
        self,
        artifact: Artifact,
        launcher: Launcher | None = None,
        *,
        reduce: Callable[[], Artifact] | None = None,
        memory: Memory | None = None,
    ) -> None:
        manifest = artifact.manifest
        self.artifact = artifact
        self.config = MlaDecodeConfig.from_fields(manifest.problem)
        self.launcher: Launcher = launcher or gpu_launcher(manifest.target)
        self._on_host: Launcher = launcher or EmulatedLauncher()
        self._build_reduce, self._memory = reduce, memory
        self._reduce: Artifact | None = None
        self._tables: dict[tuple[int, int], Any] = {}

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value}" for name, value in self.config.to_fields().items())
        return f"AiterDecodeKernel({self.artifact.manifest.kernel}: {fields})"

    @takes_call
    def __call__(self, call: AiterCall) -> tuple[Any, Any]:
        """Attention of `q` over the paged cache: (output, log-sum-exp). See `run`. FindingsError
        for what the emulator finds."""
        done = self._called(call)
        return done.output, done.lse

    @takes_call
    def run(self, call: AiterCall) -> AiterDecodeRun:
        """Attention of `q` over the paged cache, with the arguments of AITER's `mla_decode_fwd`.

        `q` [tokens, H, 576] and `kv_buffer` [pages, page_size, 1, 576] bf16; `qo_indptr` [B + 1]
        says whose the tokens are; `kv_indptr` [B + 1], `kv_page_indices` and `kv_last_page_lens`
        [B] which pages a sequence has; `work_indptr` [workgroups + 1] and `work_info_set` [items,
        8] are made by `get_mla_metadata_v1`, or `plan_aiter` here. All are int32 and contiguous, on
        one GPU, or all arrays of numpy, which are emulated. `scale` multiplies the dot products.
        `max_seqlen_q`: the most tokens of a sequence, q_len where it is not given. `q_scale` and
        `kv_scale`: fp32 [1], of numbers of e4m3.

        With `reduce_indptr`, `reduce_final_map` and `reduce_partial_map` parts are merged into
        `out` and `lse`; without them they are left in `partial_o` fp32 [rows, H, 512] (or [rows, 1,
        H, 512]) and `partial_lse` [rows, H]. `work_meta_data`: AITER's tensor of two addresses,
        which is made where it is not given. `checked` copies all int32 tensors to the host first,
        waiting for the GPU, and refuses work that is not done once, and what leads out of tensors;
        for arrays of the host that is always done. Without it the kernel believes tables on a GPU,
        as AITER's does: damaged ones reach other memory.

        Raises ConfigError for tensors and numbers that the kernel cannot serve, before anything is
        launched.
        """
        return self._run(call)

    @takes_call
    def called(self, call: AiterCall) -> AiterDecodeRun:
        """The same as a call, with the parts."""
        return self._called(call)

    @takes_call
    def prepare(self, call: AiterCall) -> PreparedMlaDecode:
        """The same call on tensors of a GPU, checked and packed but not launched."""
        if isinstance(call.tensors[0], np.ndarray):
            raise ConfigError(
                "prepare: arrays of the host are emulated, call by call",
                hint="kernel(q, ..) runs them; tensors of a GPU are prepared",
            )
        tensors, launches = self._launches(call)
        prepare: Any = self.launcher
        ready = tuple(prepare.prepare(artifact, **given) for artifact, given in launches)
        return PreparedMlaDecode(ready, tensors["o"], tensors["lse"])

    def _called(self, call: AiterCall) -> AiterDecodeRun:
        done = self._run(call)
        for artifact, report in zip(self._artifacts(call), done.reports, strict=False):
            if found := findings_of(artifact, report):
                raise findings_error(artifact, found)
        return done

    def _run(self, call: AiterCall) -> AiterDecodeRun:
        tensors, launches = self._launches(call)
        host = isinstance(call.tensors[0], np.ndarray)
        launcher = self._on_host if host else self.launcher
        theirs = (*tensors.values(), *(call.reduction or ()), call.table)
        reports = tuple(
            launcher.launch(artifact, **given, graphs_keep=own_tensors(given["tensors"], theirs))
            if isinstance(launcher, GpuLauncher)
            else launcher.launch(artifact, **given)
            for artifact, given in launches
        )
        return AiterDecodeRun(
            tensors["o"], tensors["lse"], tensors["partial_o"], tensors["partial_lse"], reports
        )

    def _artifacts(self, call: AiterCall) -> tuple[Artifact, ...]:
        """In the order of their launches."""
        return (self.artifact, *((self._merging(),) if call.reduction else ()))

    # ---- what a call launches ---------------------------------------------------------------

    def _launches(self, call: AiterCall) -> tuple[dict[str, Any], list[Launch]]:
        """All tensors of a call, and what is to be launched, all checked."""
        config = self.config
        tensors = dict(zip(TENSORS, call.tensors, strict=True)) | self._scales(call.scales)
        maps = dict(zip(REDUCTION, call.reduction or (), strict=False))
        parts = dict(zip(("partial_o", "partial_lse"), call.parts or (), strict=False))
        outputs = {n: x for n, x in (("o", call.out), ("lse", call.lse)) if x is not None}
        host = on_the_host({**tensors, **maps, **parts, **outputs})
        self._check_shapes(tensors, maps)
        most = self._most_tokens(call.max_seqlen_q)
        outputs = self._outputs(call, tensors, {**outputs, **parts}, maps)
        if host or call.checked:
            self._check_work({**tensors, **maps}, int(outputs["partial_lse"].shape[0]), most)
            if call.table is not None:
                check_table(call.table, self._places(tensors, host))
        tokens, workgroups = int(tensors["q"].shape[0]), int(tensors["work_indptr"].shape[0]) - 1
        everything = {**tensors, **outputs}
        launches: list[Launch] = []
        if tokens and workgroups:
            table = call.table if call.table is not None else self._table(everything, host)
            launches.append((self.artifact, {
                "tensors": {**everything, "work_meta_data": table},
                "scalars": aiter_numbers(config, check_scale(call.scale), most),
                "sizes": {"workgroups": workgroups},
            }))  # fmt: skip
            groups = int(maps["reduce_indptr"].shape[0]) - 1 if maps else 0
            if groups and int(maps["reduce_partial_map"].shape[0]):
                merging = self._merging()
                lines = most * config.num_heads * config.d_v // REDUCE_COLUMNS
                launches.append((merging, {
                    "tensors": {**maps, **outputs},
                    "scalars": {},
                    "sizes": {"lines": lines, "groups": groups},
                }))  # fmt: skip
        return everything, launches

    def _scales(self, given: tuple[Any, Any]) -> dict[str, Any]:
        """q_scale and kv_scale, which are there where numbers are e4m3, and only there."""
        config, found = self.config, {}
        types = ("q_scale", config.dtype), ("kv_scale", config.cache_dtype)
        for (name, element), tensor in zip(types, given, strict=True):
            if (tensor is None) is not (element == "bf16"):
                how = "missing" if tensor is None else "given"
                raise ConfigError(
                    f"{name} is {how}, but the kernel is for {element}",
                    hint="scales are of e4m3: fp32 [1], on the tensors' GPU",
                )
            if tensor is not None:
                found[name] = tensor
        return found

    def _check_shapes(self, tensors: dict[str, Any], maps: dict[str, Any]) -> None:
        config, batch = self.config, int(tensors["qo_indptr"].shape[0]) - 1
        heads, wide = config.num_heads, config.d_qk
        wanted: dict[str, tuple[tuple[int | None, ...], str]] = {
            "q": ((None, heads, wide), config.q_element),
            "cache": ((None, config.page_size, 1, wide), config.cache_element),
            "qo_indptr": ((None,), "int32"),
            "kv_indptr": ((batch + 1,), "int32"),
            "kv_page_indices": ((None,), "int32"),
            "q_scale": ((1,), "fp32"),
            "kv_scale": ((1,), "fp32"),
            "kv_last_page_lens": ((batch,), "int32"),
            "work_indptr": ((None,), "int32"),
            "work_info_set": ((None, 8), "int32"),
            "reduce_indptr": ((None,), "int32"),
            "reduce_final_map": ((None, 2), "int32"),
            "reduce_partial_map": ((None,), "int32"),
        }  # fmt: skip
        for name, tensor in {**tensors, **maps}.items():
            check("kv_buffer" if name == "cache" else name, tensor, *wanted[name])

    def _most_tokens(self, given: int | None) -> int:
        """The most tokens of a sequence."""
        if given is None:
            return self.config.q_len
        if not 1 <= given <= self.config.q_len:
            raise ConfigError(
                f"max_seqlen_q={given} is not in 1 .. {self.config.q_len}, the tokens that the "
                f"kernel is for",
                hint=f"q_len={given}",
            )
        return int(given)

    def _outputs(
        self, call: AiterCall, tensors: dict[str, Any], given: dict[str, Any], maps: dict[str, Any]
    ) -> dict[str, Any]:
        """What the call writes: o, lse and the partial buffers, made where they are not given."""
        config, q = self.config, tensors["q"]
        tokens, heads, wide = int(q.shape[0]), config.num_heads, config.d_v
        if "partial_o" in given:
            rows = int(given["partial_o"].shape[0])
            # AITER has an extent of 1 between rows and heads.
            one = (1,) if len(given["partial_o"].shape) == 4 else ()
        else:
            rows, one = max(int(maps["reduce_partial_map"].shape[0]), 1) * config.q_len, ()
        log_sums = (*one, heads, 1) if one else (heads,)
        wanted: dict[str, tuple[tuple[int | None, ...], str]] = {
            "o": ((tokens, heads, wide), config.output_dtype),
            "lse": ((tokens, heads), "fp32"),
            "partial_o": ((rows, *one, heads, wide), "fp32"),
            "partial_lse": ((rows, *log_sums), "fp32"),
        }
        outputs: dict[str, Any] = {}
        for name, what in wanted.items():
            label = "out" if name == "o" else name
            output = given.get(name)
            if output is None:
                output = made(label, q, *what)
            check(label, output, *what)
            for other, tensor in {**tensors, **maps, **outputs}.items():
                if overlap(output, tensor):
                    raise ConfigError(f"{label} overlaps {other} in memory", hint="pass another")
            outputs[name] = output
        return outputs

    def _check_work(self, tensors: dict[str, Any], rows: int, most: int) -> None:
        """All that the host can see of AITER's arrays; `rows`: of the partial buffers; `most`:
        tokens of a sequence, which `max_seqlen_q` says."""
        names = (*TENSORS[2:], *REDUCTION)
        held = {name: as_host(name, tensors[name]) for name in names if name in tensors}
        shape = AiterShape.of(
            self.config, held["qo_indptr"], held["kv_indptr"], held["kv_last_page_lens"]
        )
        longest = max(end - first for first, end in pairwise(shape.qo_indptr))
        if longest > most:
            raise ConfigError(
                f"max_seqlen_q={most}, but a sequence has {longest} query tokens",
                hint=f"max_seqlen_q={longest}",
            )
        tokens = int(tensors["q"].shape[0])
        if shape.qo_indptr[-1] > tokens:
            raise ConfigError(f"qo_indptr ends at {shape.qo_indptr[-1]}, q has {tokens} tokens")
        check_page_list(shape, held["kv_page_indices"], int(tensors["cache"].shape[0]))
        groups = check_aiter_work(
            shape, held["work_indptr"], held["work_info_set"], partial_rows=rows
        )
        if REDUCTION[0] in held:
            items = [item for group in groups for item in group]
            check_merging(items, *(held[name] for name in REDUCTION))

    def _table(self, tensors: dict[str, Any], host: bool) -> Any:
        """`work_meta_data`: where the work's two arrays lie. One that was made stays, as a captured
        graph may know it."""
        first, second = places = self._places(tensors, host)
        if host:
            return np.array(places, np.int64)
        if (first, second) not in self._tables:
            memory = self._memory or TorchMemory(tensors["work_indptr"].device)
            self._tables[first, second] = memory.upload(np.array([first, second], np.int64))
        return self._tables[first, second]

    def _places(self, tensors: dict[str, Any], host: bool) -> tuple[int, ...]:
        """The addresses of `work_indptr` and `work_info_set`."""
        if host:
            return tuple(table_of(self.artifact, tensors).tolist())
        own = [tensors[name] for name in ("work_indptr", "work_info_set")]
        return tuple(device_tensor("work", tensor, 0).pointer for tensor in own)

    def _merging(self) -> Artifact:
        if self._reduce is None:
            if self._build_reduce is None:
                raise ConfigError(
                    "reduce_indptr is given, but this kernel has no reduce kernel beside it",
                    hint=f"mlagen.build('{self.artifact.manifest.kernel}', ..) brings it",
                )
            self._reduce = self._build_reduce()
        return self._reduce


def aiter_decode_kernel(
    artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
) -> AiterDecodeKernel:
    """An `AiterDecodeKernel`, which builds the reduce kernel when a call first merges parts."""
    config = MlaDecodeConfig.from_fields(artifact.manifest.problem)
    fields = {"num_heads": config.num_heads, "depth": config.d_v, "lse": True}
    reduce = None if build is None else partial(build, REDUCE_KERNEL, fields)
    return AiterDecodeKernel(artifact, launcher, reduce=reduce)
