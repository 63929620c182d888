"""Runs of the decode kernel's PTX in the emulator, without ptxas and without a family's trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

from mlagen.artifact import Artifact
from mlagen.codegen import build
from mlagen.emulator import Argument, Buffer, EmulationResult, Launch, Settings, TensorMap, emulate
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.plan import plan_work
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.family import MutantCall
from mlagen.mutation.ptx.runs import Outputs, Runs
from mlagen.problem.expected import compare
from mlagen.problem.formats import BF16, scale_log2e
from mlagen.targets.nvidia.ptxas import PtxasResult

UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())
_APART = 1 << 38
_MAP_DTYPES = {"bf16": "bf16", "fp8_e4m3": "u8", "uint8": "u8"}


@cache
def decode(knobs: tuple[tuple[str, Any], ...] = (), **fields: Any) -> Artifact:
    """The decode kernel; what ptxas makes of it is not asked, which takes most of a build."""
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        return build("mla_decode_sm90", MlaDecodeConfig(**fields), knobs=dict(knobs))


class DecodeRuns(Runs):
    """The decode kernel on calls of some lengths and a kind of data each; blocks that take several
    items where the kernel is persistent. Partial results are outputs too."""

    def __init__(
        self,
        artifact: Artifact,
        config: MlaDecodeConfig,
        lengths: Sequence[tuple[Sequence[int], str]],
        **planned: Any,
    ) -> None:
        self.artifact, self.config, self.planned = artifact, config, planned
        self.problem = str(config)
        self._lengths = {
            MutantCall(f"lengths {list(own)}, {data}"): (own, data) for own, data in lengths
        }

    @property
    def calls(self) -> Sequence[MutantCall]:
        return tuple(self._lengths)

    def run(
        self, call: MutantCall, text: str, mode: Any, seed: int, limit: int | None
    ) -> tuple[Outputs, EmulationResult]:
        inputs, work = self._made(call)
        given, outputs = _arguments(inputs, work, self.config)
        launch = _launch(self.artifact, given, outputs, self._blocks(work))
        settings = Settings(mode=mode, seed=seed, threads=1, max_instructions=limit)
        return outputs, emulate(text, launch, settings)

    def wrong(self, call: MutantCall, outputs: Outputs) -> str:
        inputs, work = self._made(call)
        if len(work.merges):
            return ""
        expected = exact(inputs, splits=work.splits)
        shape = (inputs.batch, self.config.num_heads, self.config.q_len)
        good = compare(expected.output, outputs["o"]).passed
        good &= compare_lse(expected.lse, outputs["lse"].reshape(shape)).passed
        return "" if good else "exact oracle"

    def _made(self, call: MutantCall) -> Any:
        lengths, data = self._lengths[call]
        inputs = mla_decode_inputs(self.config, lengths=lengths, data=data)
        return inputs, plan_work(self.config, lengths, **(self.planned or {"blocks": 1}))

    def _blocks(self, work: Any) -> int:
        return len(work.items) if work.shares is None else len(work.shares) - 1


def _arguments(
    inputs: Any, work: Any, config: MlaDecodeConfig
) -> tuple[dict[str, Any], dict[str, Any]]:
    q = inputs.q
    o = np.full((*q.shape[:-1], 512), np.nan, BF16)
    tokens = q.size // (config.num_heads * q.shape[-1])
    outputs = {
        "o": o,
        "lse": np.full(tokens * config.num_heads, np.nan, np.float32),
        "partial_o": np.full((max(work.slots, 1), 64, 512), np.nan, np.float32),
        "partial_lse": np.full((max(work.slots, 1), 64), np.nan, np.float32),
        "arrivals": np.zeros(max(work.slots, 1), np.int32),
    }
    given = {
        "q": q, "cache": inputs.cache, "items": work.items, "block_table": inputs.block_table,
        "cache_lengths": inputs.cache_lengths, **outputs, "max_pages": np.int32(inputs.max_pages),
        "lse_stride": np.int32(work.lse_stride), "num_blocks": np.int32(inputs.num_blocks),
        "scale_log2e": np.float32(scale_log2e(inputs.score_scale)), "shares": work.shares,
        "kv_scale": np.float32(inputs.kv_scale), "kv_scales": inputs.kv_scales,
        "q_scales": inputs.q_scales,
    }  # fmt: skip
    return given, outputs


def _launch(
    artifact: Artifact, given: Mapping[str, Any], outputs: Mapping[str, Any], blocks: int
) -> Launch:
    manifest = artifact.manifest
    buffers: dict[str, Buffer] = {}
    arguments = []
    for number, arg in enumerate(manifest.args):
        if arg.rows_of:
            arguments.append(Argument(arg.offset, np.uint32(arg.rows_in(given[arg.rows_of].shape))))
            continue
        value = given[arg.tensor or arg.name]
        if not isinstance(value, np.ndarray):
            arguments.append(Argument(arg.offset, value))
            continue
        name = arg.tensor
        if name not in buffers:
            raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            base = (number + 1) * _APART - max(raw.nbytes // 512, 1) * 256
            access = "write" if name in outputs else "read"
            buffers[name] = Buffer(name, raw, access, base)
        spec = arg.tensor_map
        if spec is None:
            arguments.append(Argument(arg.offset, buffers[name]))
            continue
        size = {"bf16": 2}.get(spec.dtype, 1)
        cols = int(spec.cols) if not isinstance(spec.cols, str) else value.shape[-1]
        pitch = (int(spec.pitch) if not isinstance(spec.pitch, str) else value.shape[-1]) or cols
        rows = value.nbytes // (pitch * size)
        made = TensorMap(
            buffers[name], _MAP_DTYPES[spec.dtype], (cols, rows), (pitch * size,),
            (spec.box_cols, spec.box_rows), swizzle=f"{spec.swizzle_bytes}B",
        )  # fmt: skip
        arguments.append(Argument(arg.offset, made))
    return Launch(
        (blocks, 1, 1), manifest.block, arguments, kernel=manifest.symbol,
        dynamic_shared=manifest.resources.lds_bytes,
    )  # fmt: skip
