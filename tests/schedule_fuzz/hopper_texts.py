"""Judging survivors for NVIDIA: the emulator in three modes, its sanitizer, both oracles."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
from fuzzed import Call, Case

sys.path.append(str(Path(__file__).resolve().parents[1] / "ptx"))

from ptx_runs import Map, run

from mlagen.artifact import Artifact
from mlagen.attention.latent.block_sizes import MERGE_INTS
from mlagen.attention.latent.order import HOPPER_E4M3, KEYS_AS_ROWS, SEESAW
from mlagen.codegen import build
from mlagen.emulator import Mode, Settings
from mlagen.errors import MlagenError
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.orders import FROM_REGISTERS
from mlagen.families.mla_decode.plan import plan_work
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.launch import EmulatedLauncher
from mlagen.problem.expected import Expected, compare
from mlagen.problem.formats import BF16, scale_log2e
from mlagen.targets.nvidia.ptxas import PtxasResult
from mlagen.verify import kind_of

FEW = ("swap_ab", "swap_ab_split_roles")  # tables of few query rows
MODES: tuple[Mode, ...] = ("latest", "earliest", "random")
OUTPUTS = ("o", "lse", "c", "out")
STEPS = 2_000_000  # warp-instructions of a block, after which it is called endless
BLACKWELL = {  # kernels by problem
    "MlaSparsePrefillConfig": "mla_sparse_prefill_sm100",
    "MlaSparseDecodeConfig": "mla_sparse_decode_sm100",
    "MlaDecodeConfig": "mla_decode_sm100",
    "MlaDecodeMergeConfig": "mla_decode_merge_sm100",
}
UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())


@dataclass(frozen=True)
class Trial:
    """One launch: its grid, and what holds the outputs of a run.

    `arguments` makes them anew for a kernel, tensor maps as its manifest has them, outputs
    poisoned; `wrong` says what is wrong with them, or nothing.
    """

    call: Call
    grid: tuple[int, int]
    arguments: Callable[[Artifact], dict[str, Any]]
    wrong: Callable[[dict[str, Any]], str]

    def run(self, made: Artifact, settings: Settings) -> tuple[dict[str, Any], str]:
        """Outputs, and what is wrong with them."""
        arguments = self.arguments(made)
        run(made.text, self.grid, arguments, settings=settings)
        return {name: arguments[name] for name in arguments.keys() & OUTPUTS}, self.wrong(arguments)


@dataclass(frozen=True)
class OfKind:
    """One launch as the problem's kind makes it, of the kernel of `artifact` with another text,
    what that needs and its arguments."""

    call: Call
    artifact: Artifact
    trial: Any
    expected: tuple[Expected, ...]

    def run(self, edited: Artifact, settings: Settings) -> tuple[dict[str, Any], str]:
        own = edited.manifest
        needs = msgspec.structs.replace(
            self.artifact.manifest, resources=own.resources, args=own.args,
            kernarg_bytes=own.kernarg_bytes,
        )  # fmt: skip
        launcher = EmulatedLauncher(
            mode=settings.mode, threads=1, max_instructions=settings.max_instructions
        )
        made, report = self.trial.run(
            replace(self.artifact, text=edited.text, manifest=needs), launcher
        )
        assert not report.emulation.findings, "\n".join(map(str, report.emulation.findings))
        return made, _held(compare(of, made[of.output]) for of in self.expected)


def unassembled(function: Any, problem: Any, knobs: dict[str, Any]) -> Artifact:
    """The kernel with its PTX, which is emulated: what ptxas makes of it is not asked."""
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        return build(function, problem, knobs=knobs)


def trials(case: Case, problem: Any, knobs: dict[str, Any]) -> list[Trial | OfKind]:
    """The case's calls with their oracles."""
    knobs |= {"variant": case.variant} if case.variant else {}
    make: Callable[..., Iterator[Trial | OfKind]]
    if case.target == "sm_100a" and type(problem).__name__ in BLACKWELL:
        make = partial(_of_kind, name=BLACKWELL[type(problem).__name__])
    elif isinstance(problem, MlaDecodeConfig):
        make = partial(_decode, few=case.function in FEW,
                       converted=case.function == "swap_ab_split_roles")  # fmt: skip
    else:
        make = {
            "MlaDecodeMergeConfig": _merge, "GemmConfig": _gemm, "Folding": _fold,
            "MlaSparsePrefillConfig": _sparse, "MlaSparseDecodeConfig": _sparse,
        }[type(problem).__name__]  # fmt: skip
    return [made for call in case.calls for made in make(call, problem, knobs)]


def wrong(found: list[Trial | OfKind], made: Artifact, doing: Callable[[str], None]) -> str:
    """What is wrong with the kernel; nothing: it is right in every mode, with the same bits, and
    nothing of any severity is found."""
    bits: dict[tuple[int, str], bytes] = {}
    for mode in MODES:
        for number, trial in enumerate(found):
            where = f"{trial.call}, {mode}"
            doing(f"run {where}")
            try:
                settings = Settings(mode=mode, exact=False, max_instructions=STEPS)
                outputs, what = trial.run(made, settings)
            except (AssertionError, MlagenError) as error:
                return f"{where}: {type(error).__name__}: {error}"
            if what:
                return f"{where}: {what}"
            for name, array in outputs.items():
                raw = np.ascontiguousarray(array).tobytes()
                if bits.setdefault((number, name), raw) != raw:
                    return f"{where}: other bits of {name} than in mode {MODES[0]}"
    return ""


def _tensor(made: Artifact, name: str, array: Any) -> Any:
    """An argument as the kernel takes it, which an edit may change: a tensor map with boxes of the
    rows that its manifest says, or a pointer."""
    (map,) = (arg.tensor_map for arg in made.manifest.args if arg.name == name)
    return array if map is None else Map(array, map.box_rows)


def _held(pairs: Iterator[Any]) -> str:
    for found in pairs:
        if not found.passed:
            return (f"{found.failures} of {found.elements} elements are wrong by the "
                    f"{found.oracle} oracle, {found.nans} of them NaN")  # fmt: skip
    return ""


# ---- kernels -------------------------------------------------------------------------------------


def _decode(
    call: Call, config: MlaDecodeConfig, knobs: dict[str, Any], few: bool, converted: bool
) -> Iterator[Trial]:
    """`lengths`, and `split` keys a block; persistent blocks take all items one after another.
    `few`: the table is one of few query rows; `converted`: the one that takes stored keys from
    registers."""
    lengths = call.shape["lengths"]
    inputs = mla_decode_inputs(config, lengths=lengths, data=call.data)
    if knobs.get("persistent"):
        work = plan_work(config, lengths, split_keys=call.shape.get("split", 4096))
        work = replace(work, shares=np.array([0, len(work.items)], np.int32))
    elif "split" in call.shape:
        work = plan_work(config, lengths, split_keys=call.shape["split"])
    else:
        work = plan_work(config, lengths, blocks=1)
    assert not len(work.merges), "the merge is a kernel of its own"
    order = KEYS_AS_ROWS if few else SEESAW
    if converted:
        order = FROM_REGISTERS[config.cache_dtype]
    if config.compute == "fp8":  # sums of fp32 are not cut
        order = replace(HOPPER_E4M3, kept=0)
    expected = [oracle(inputs, splits=work.splits, order=order) for oracle in (exact, rounded)]
    shape = (inputs.batch, config.num_heads, config.q_len)
    gathered, pool, q = config.page_size == 1, inputs.cache, inputs.q
    row = pool.shape[2] * pool.shape[3]
    mapped = config.dtype == "bf16" or config.compute == "fp8"

    def arguments(kernel: Artifact) -> dict[str, Any]:
        tokens = q.size // (config.num_heads * q.shape[-1])
        made = {
            "q": _tensor(kernel, "q", q.reshape(-1, 576) if mapped else q),
            "cache": pool if gathered else _tensor(kernel, "cache", pool.reshape(-1, row)),
            "items": work.items, "block_table": inputs.block_table,
            "cache_lengths": inputs.cache_lengths, "max_pages": inputs.max_pages,
            "o": np.full((*q.shape[:-1], 512), np.nan, BF16),
            "lse": np.full(tokens * config.num_heads, np.nan, np.float32),
            "partial_o": np.full((max(work.slots, 1), 64, 512), np.nan, np.float32),
            "partial_lse": np.full((max(work.slots, 1), 64), np.nan, np.float32),
            "lse_stride": work.lse_stride,
            "scale_log2e": np.float32(scale_log2e(inputs.score_scale)),
        }  # fmt: skip
        if gathered or config.rope_aware:
            made["num_blocks"] = inputs.num_blocks
        if config.rope_aware:
            made["kv_scales"] = inputs.kv_scales
        elif config.cache_dtype != "bf16":
            made["kv_scale"] = np.float32(inputs.kv_scale)
        if work.shares is not None:
            made["shares"] = work.shares
        if any(arg.name == "arrivals" for arg in kernel.manifest.args):
            made["arrivals"] = np.zeros(2 * max(work.slots, 1), np.int32)
        return made

    def judged(made: dict[str, Any]) -> str:
        lse = made["lse"].reshape(shape)
        return _held(
            found
            for of in expected
            for found in (compare(of.output, made["o"]), compare_lse(of.lse, lse))
        )

    count = len(work.items) if work.shares is None else len(work.shares) - 1
    yield Trial(call, (count, 1), arguments, judged)


def _merge(call: Call, config: MlaDecodeMergeConfig, knobs: dict[str, Any]) -> Iterator[Trial]:
    """Parts of `keys` keys each, split by 64; some without keys hold NaN."""
    heads, keys = config.num_heads, call.shape["keys"]
    work = plan_work(MlaDecodeConfig(heads), keys, split_keys=64)
    rng = np.random.default_rng(len(work.merges))
    partial_o = rng.standard_normal((work.slots, 64, 512)).astype(np.float32)
    partial_lse = (4 * rng.standard_normal((work.slots, 64))).astype(np.float32)
    nothing = rng.random((work.slots, 64)) < 0.2
    nothing[:, 3] = True
    partial_lse[nothing], partial_o[nothing] = -np.inf, np.nan
    merges = np.concatenate([work.merges, np.zeros((1, MERGE_INTS), np.int32)])
    rows = heads * len(keys)

    def arguments(kernel: Artifact) -> dict[str, Any]:
        return {
            "merges": merges, "partial_o": partial_o, "partial_lse": partial_lse,
            "o": np.full((rows, 512), np.nan, BF16), "lse": np.full(rows, np.nan, np.float32),
            "lse_stride": 1,
            **({} if kernel.manifest.facts["slot_rows"] else {"slot_rows": 64}),
        }  # fmt: skip

    def judged(made: dict[str, Any]) -> str:
        o, lse = made["o"].astype(np.float64), made["lse"]
        for slot, count, query, of, *_ in np.unique(work.merges[:, :6], axis=0):
            parts = slice(slot, slot + count)
            weight = np.exp2(partial_lse[parts, :of].astype(np.float64))
            total = weight.sum(axis=0)
            added = np.where(nothing[parts, :of, None], 0, partial_o[parts, :of])
            right = (weight[:, :, None] * added).sum(axis=0)
            right /= np.where(total > 0, total, 1)[:, None]
            at = slice(query, query + of)
            if not (np.abs(o[at] - right) <= 2.0**-8 * np.abs(right) + 1e-5).all():
                return f"rows {query}..{query + of - 1} of O are wrong"
            with np.errstate(divide="ignore"):
                logs = np.log(total)
            some = total > 0
            if not (np.isneginf(lse[at]) == ~some).all() or not np.allclose(
                lse[at][some], logs[some], rtol=0, atol=1e-5
            ):
                return f"LSEs {query}..{query + of - 1} are wrong"
        return ""

    yield Trial(call, (len(merges), 1), arguments, judged)


def _sparse(call: Call, config: Any, knobs: dict[str, Any]) -> Iterator[OfKind]:
    decode = type(config).__name__ == "MlaSparseDecodeConfig"
    name = "mla_sparse_decode_sm90" if decode else "mla_sparse_prefill_sm90"
    return _of_kind(call, config, knobs, name)


def _of_kind(call: Call, config: Any, knobs: dict[str, Any], name: str) -> Iterator[OfKind]:
    """As the kind has it, of the shipped kernel, whose facts no edit changes."""
    chosen = {knob: knobs[knob] for knob in ("variant", "persistent") if knob in knobs}
    artifact = unassembled(name, config, chosen)
    kind = kind_of(artifact)
    inputs = kind.inputs(config.to_fields(), data=call.data, seed=0, **call.shape)
    trial = kind.trial(inputs).planned(artifact)
    yield OfKind(call, artifact, trial, tuple(trial.oracles()))


def _gemm(call: Call, config: Any, knobs: dict[str, Any]) -> Iterator[Trial]:
    from gemm.oracles import exact as product
    from gemm.oracles import rounded as in_fp32
    from gemm.verification import gemm_inputs

    inputs = gemm_inputs(config, data=call.data, **call.shape)
    expected = [oracle(inputs) for oracle in (product, in_fp32)]
    sizes = inputs.sizes

    def arguments(kernel: Artifact) -> dict[str, Any]:
        return {
            "a": _tensor(kernel, "a", inputs.a),
            "b": _tensor(kernel, "b", inputs.b),
            "c": np.full((sizes["m"], sizes["n"]), np.nan, np.float32),
            **sizes,
        }

    def judged(made: dict[str, Any]) -> str:
        return _held(compare(of, made["c"][None, :, None]) for of in expected)

    grid = -(-sizes["n"] // knobs["n_tile"]), -(-sizes["m"] // knobs["m_tile"])
    yield Trial(call, grid, arguments, judged)


def _fold(call: Call, config: Any, knobs: dict[str, Any]) -> Iterator[Trial]:
    from fuzz_rows import FoldInputs, FoldKind, oracles_of

    inputs: FoldInputs = FoldKind().inputs({}, data=call.data, seed=0, **call.shape)
    expected = oracles_of(inputs)
    m, k = inputs.x.shape
    # No map describes rows without columns: these hold what must not come into the result.
    mapped = inputs.x if k else np.full((m, 32), np.nan, np.float32)

    def arguments(kernel: Artifact) -> dict[str, Any]:
        return {
            "x": _tensor(kernel, "x", mapped),
            "out": np.full(m, np.nan, np.float32),
            "m": m,
            "k": k,
        }

    def judged(made: dict[str, Any]) -> str:
        return _held(compare(of, made["out"][None, :, None, None]) for of in expected)

    yield Trial(call, (-(-m // 128), 1), arguments, judged)
