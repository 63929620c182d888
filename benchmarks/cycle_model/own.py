"""mlagen's prefill kernels that tables show beside measured ones of AITER for the same problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cycle_model.ladder import Ladder

from mlagen.app.build import build_artifact
from mlagen.app.cycle_jobs import job_of_artifact
from mlagen.codegen.schedules import load

# Tokens of the two runs of a ladder. 3072 apart: whole iterations of any number of LDS slots.
LENGTHS = (1024, 4096)


@dataclass(frozen=True, slots=True)
class OwnKernel:
    """A kernel with one head and no mask, whose workgroups take as many more cycles for every
    further tile of keys. `beside`: the measured kernel, as `cycle_model.aiter_prefill` names it."""

    kernel: str
    dtype: str
    beside: str

    @property
    def name(self) -> str:
        """In tables."""
        return self.kernel if self.dtype == "bf16" else f"{self.kernel} {self.dtype[:3]}"

    def ladder(self, knobs: Mapping[str, Any] | None = None) -> Ladder:
        """The kernel at each of its lengths, one workgroup of it."""
        fields = {"num_heads": 1, "num_kv_heads": 1, "mask": "null", "dtype": self.dtype}
        config: Any = load(self.kernel).problem_type.from_fields(fields)
        artifact = build_artifact(self.kernel, fields, knobs or {})
        streams = {}
        for length in LENGTHS:
            shape = {"batch": 1, "seq_len": length, "num_keys": length}
            job = job_of_artifact(artifact, shape, groups=[(0, 0, 0)], tiles=None)
            streams[length] = job.streams[0]
        tile, depth = (config.q_tile, config.kv_block), (config.qk_width, config.v_width)
        return Ladder(self.name, job.kernel, streams, tile, depth)


KERNELS = (
    OwnKernel("mha_prefill_v2", "bf16", "hd128_bf16"),
    OwnKernel("mha_prefill_v2", "fp8_e4m3", "hd128_fp8"),
    OwnKernel("mla_prefill_v2", "bf16", "hd192_hd128_bf16"),
    OwnKernel("mla_prefill_v2", "fp8_e4m3", "mla_pfl"),
)
