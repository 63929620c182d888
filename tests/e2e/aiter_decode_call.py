"""Calls of MLA decode in AITER's arguments: through the callable, and launched raw."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mlagen.attention.latent.order import BY_WAVES, BY_WIDE_WAVES
from mlagen.emulator import Argument, Buffer, Launch, emulate
from mlagen.families.mla_decode.aiter_plan import aiter_arrays, aiter_numbers, plan_aiter
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.problem.expected import compare
from mlagen.problem.formats import BF16

# Offsets of AITER's launcher (csrc/py_itfs_cu/asm_mla.cu), written down a second time.
POINTERS = {
    0x00: "partial_o", 0x10: "partial_lse", 0x20: "q", 0x30: "cache", 0x40: "kv_indptr",
    0x50: "kv_page_indices", 0x60: "kv_last_page_lens", 0xD0: "qo_indptr", 0xE0: "table",
    0xF0: "o", 0x130: "lse",
}  # fmt: skip
NUMBERS = {0x70: "scale", 0x80: "num_heads", 0xA0: "q_stride", 0xB0: "page_stride", 0x150: "world"}
WORK = {"work_indptr": 1 << 44, "work_info_set": 1 << 45}


@dataclass(frozen=True)
class AiterDecode:
    """One call with the plan of its work."""

    config: MlaDecodeConfig
    lengths: tuple
    workgroups: int
    split_keys: int = 0
    data: str = "late_max"

    @cached_property
    def inputs(self):
        return mla_decode_inputs(self.config, data=self.data, seed=0, lengths=self.lengths)

    @cached_property
    def plan(self):
        return plan_aiter(
            self.config,
            self.lengths,
            workgroups=self.workgroups,
            split_keys=self.split_keys or None,
        )

    @cached_property
    def arguments(self):
        """Of the callable."""
        arrays = aiter_arrays(self.inputs)
        arrays["kv_buffer"] = arrays.pop("cache")
        names = ("work_indptr", "work_info_set", "reduce_indptr", "reduce_final_map",
                 "reduce_partial_map")  # fmt: skip
        return {**arrays, **{n: getattr(self.plan, n) for n in names}, "scale": self.inputs.scale}

    def parts(self, rows, *, maps=True):
        """Partial buffers, full of NaN; without `maps` there is no reduction either."""
        heads = self.config.num_heads
        found = {
            "partial_o": np.full((rows, heads, 512), np.nan, np.float32),
            "partial_lse": np.full((rows, heads), np.nan, np.float32),
        }
        none = dict.fromkeys(("reduce_indptr", "reduce_final_map", "reduce_partial_map"))
        return found if maps else {**found, **none}

    def check(self, out, lse, rows=None, order=None):
        """Both oracles on these rows of [tokens, H, ..]; all without `rows`. `order`: in which the
        kernel computes, that of bf16 if nothing else."""
        config = self.config
        at = np.arange(len(self.lengths) * config.q_len) if rows is None else np.array(rows)
        usual = BY_WAVES if config.num_heads * config.q_len <= 64 else BY_WIDE_WAVES
        for oracle in (exact, rounded):
            found = oracle(self.inputs, splits=self.plan.splits, order=order or usual)
            pairs = ((found.output, out),) if lse is None else (
                (found.output, out), (found.lse, lse[..., None])
            )  # fmt: skip
            for expected, got in pairs:
                flat = {
                    name: array.reshape(1, -1, *array.shape[2:])[:, at]
                    for name, array in (("values", expected.values), ("bounds", expected.bounds))
                }
                few = replace(expected, **flat, rows=np.arange(len(at)))
                assert compare(few, got[None]).passed

    def launched(self, artifact, **changed):
        """O and the final LSE of a raw launch: the bytes that AITER's launcher would pass."""
        out, lse, *_ = self.launched_all(artifact, **changed)
        return out, lse

    def launched_all(self, artifact, **changed):
        """O, LSE, partial O and their LSE. `changed`: other arrays and numbers by their names."""
        config, tokens = self.config, len(self.arguments["q"])
        heads = config.num_heads
        arrays = {
            **self.arguments, "cache": self.arguments["kv_buffer"],
            "o": np.full((tokens, heads, 512), np.nan, BF16),
            "lse": np.full((tokens, heads), np.nan, np.float32),
            **self.parts(max(self.plan.partial_rows, 1)),
            "table": np.array([*WORK.values(), *[0] * 8], np.uint64),
        }  # fmt: skip
        numbers = {**aiter_numbers(config, self.inputs.scale, config.q_len)}
        outputs = [arrays[name] for name in ("o", "lse", "partial_o", "partial_lse")]
        for name, value in changed.items():
            (numbers if name in numbers else arrays)[name] = value
        arguments = []
        for offset, name in POINTERS.items():
            access = "write" if name in ("o", "lse", "partial_o", "partial_lse") else "read"
            array = arrays[name]
            buffer = np.uint64(0) if array is None else Buffer(name, array, access)
            arguments.append(Argument(offset, buffer))
        for offset, name in NUMBERS.items():
            kind = np.float32 if name == "scale" else np.uint32
            arguments.append(Argument(offset, kind(numbers[name])))
        for offset, name in ((0x28, "work_indptr"), (0x38, "work_info_set")):  # in padding
            arguments.append(Argument(offset, Buffer(name, arrays[name], "read", WORK[name])))
        grid = (len(self.arguments["work_indptr"]) - 1, 1, 1)
        result = emulate(artifact.code, Launch(grid, (256, 1, 1), arguments))
        assert not result.findings, result.findings
        return outputs
