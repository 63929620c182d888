"""How kernels come to know how much there is, and what else they owe to those before and after."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from damaged import HOW, Damaging
from sparse_calls import artifact

sys.path.insert(0, str(Path(__file__).parents[1] / "launch"))

from fake_cuda import FakeApi

from mlagen.artifact import Arg
from mlagen.errors import ConfigError
from mlagen.family import family_of
from mlagen.launch import CudaLauncher
from mlagen.launch.cuda_driver import CudaDriver
from mlagen.launch.launcher import bind

MERGES = ("mla_decode_merge_sm90", "mla_decode_merge_sm100")
SLOTS, ROWS = 5, 7


def tensors() -> dict[str, np.ndarray]:
    return {
        "merges": np.zeros((3, 8), np.int32),
        "partial_o": np.zeros((SLOTS, 64, 512), np.float32),
        "partial_lse": np.zeros((SLOTS, 64), np.float32),
        "o": np.zeros((ROWS, 512), np.uint16),
        "lse": np.zeros(ROWS, np.float32),
    }


def test_the_emulator_s_launcher_counts() -> None:
    made = artifact("mla_decode_merge_sm90", {"num_heads": 8})
    bound = bind(made.manifest, tensors(), {"lse_stride": 1})
    counted = {arg.name: int(value) for arg, value in bound if arg.rows_of}
    assert counted == {"row_count": ROWS, "slot_count": SLOTS}


def test_the_launcher_of_a_gpu_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_memory import Allocator, Tensor, module

    allocator = Allocator()
    monkeypatch.setitem(sys.modules, "torch", module(allocator))
    made = artifact("mla_decode_merge_sm90", {"num_heads": 8})
    api = FakeApi()
    api.parameters = tuple(arg.size for arg in made.manifest.args)
    launcher = CudaLauncher()
    launcher.driver = CudaDriver.start(api)
    kinds = {"int32": "int32", "float32": "float32", "uint16": "bfloat16"}
    given = {n: Tensor(allocator, x.shape, kinds[str(x.dtype)]) for n, x in tensors().items()}
    launcher.launch(made, tensors=given, scalars={"lse_stride": 1}, sizes={"merges": 3})
    told = dict(zip((a.name for a in made.manifest.args), api.launches[0]["arguments"],
                    strict=True))  # fmt: skip
    assert int.from_bytes(told["row_count"], "little") == ROWS
    assert int.from_bytes(told["slot_count"], "little") == SLOTS


def test_rows_of_a_tensor() -> None:
    def counts(**more: int) -> Arg:
        return Arg("n", 0, 4, "u32", "value", rows_of="items", **more)

    assert counts().rows_in((3, 12)) == 36
    assert counts(row=12).rows_in((3, 12)) == 3
    assert counts(row=0).rows_in((3, 12)) == 3
    with pytest.raises(ConfigError, match="32 bits"):
        counts().rows_in((1 << 16, 1 << 16))
    with pytest.raises(ConfigError, match="counted in a u32"):
        Arg("n", 0, 8, "pointer", "read", rows_of="items")


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("name", MERGES)
def test_nobody_leaves_before_the_kernel_before_has_ended(name: str, sink: bool) -> None:
    """A kernel whose blocks all left would come before the one that it depends on, for those that
    come after it."""
    made = artifact(name, {"num_heads": 8, "sink": sink})
    assert made.manifest.dependent
    lines = [line.strip() for line in made.text.splitlines()]
    waits = [n for n, line in enumerate(lines) if line.startswith("griddepcontrol.wait")]
    leaves = re.compile(r"(@!?%\w+ )?(exit|ret|trap)\b|.*\bbra (EXIT|.*EXIT)\b")
    ways_out = [n for n, line in enumerate(lines) if leaves.match(line)]
    assert len(waits) == 1 and ways_out and waits[0] < min(ways_out)


def test_the_harness_sees_a_kernel_that_believes() -> None:
    """The same text, told that there are as many sequences as numbers."""
    made = artifact("mla_decode_sm90", {"num_heads": 8})
    text = re.sub(
        r"ld\.param\.u32 (%\w+), \[sequence_count\];", r"mov.u32 \1, 0x7fffffff;", made.text
    )
    assert text != made.text
    kind = family_of(made).kind("MlaDecodeConfig")
    inputs = kind.inputs(made.manifest.problem, data="realistic", seed=3, lengths=(3, 70))
    for kernel, wrong in ((made, False), (replace(made, text=text), True)):
        damaging = Damaging("items", 0, list(HOW).index("1.0"))
        kind.trial(inputs).planned(made).run(kernel, damaging)
        assert bool(damaging.wrong()) is wrong
