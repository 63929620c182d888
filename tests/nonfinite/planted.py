"""Runs of a kernel in the emulator, beside the same with a number that is none in one key."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import numpy as np

from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.launch import EmulatedLauncher
from mlagen.problem.fields import problem_of
from mlagen.targets.nvidia.ptxas import PtxasResult
from mlagen.verify import kind_of
from mlagen.verify.run import trial_of

UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())
NAN = {1: 0x7F, 2: 0x7FC0}  # of e4m3 and of bf16, by their bytes


@functools.lru_cache(maxsize=8)
def built(kernel: str, fields: tuple[tuple[str, Any], ...]):
    """The artifact; PTX is executed as text, and ptxas is not asked."""
    function = load(kernel)
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        return build(function, problem_of(function.problem_type, dict(fields)))


def made(artifact, **shape):
    """Inputs of a call of realistic numbers, with the artifact's tiles."""
    inputs = kind_of(artifact).made(artifact, data="realistic", seed=0, **shape)
    trial = trial_of(artifact, inputs, thin=False)
    return getattr(trial, "divided", None) or getattr(trial, "given", None) or trial.inputs


def outputs(artifact, inputs) -> Mapping[str, Any]:
    """Every output of the call, fp32, in four dimensions."""
    found, _ = trial_of(artifact, inputs, thin=False).run(artifact, EmulatedLauncher())
    return {name: np.asarray(array, np.float32) for name, array in found.items()}


def reached(clean, other):
    """Rows that differ in any bit of any output, as booleans [batch, row, head]."""
    return np.any(
        [
            (clean[name].view(np.uint32) != other[name].view(np.uint32)).any(axis=-1)
            for name in clean
        ],
        axis=0,
    )


def bits_of(array):
    """The array's numbers as whole numbers, which may be set; a copy."""
    copy = array.copy()
    return copy, copy.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[copy.dtype.itemsize])
