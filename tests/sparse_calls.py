"""Sparse MLA kernels of few heads, unassembled, and calls of them."""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest.mock import patch

from mlagen.app.build import build_artifact
from mlagen.attention.latent.facts import order_of
from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.expected import compare_outputs
from mlagen.families.mla_sparse.inputs import MlaSparsePrefillInputs
from mlagen.families.mla_sparse.kernel import sparse_kernel
from mlagen.families.mla_sparse.rounded import rounded
from mlagen.families.mla_sparse.verification import MlaSparseTrial, SplitInputs
from mlagen.targets.nvidia.ptxas import PtxasResult

UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())


@cache
def _artifact(
    name: str, fields: tuple[tuple[str, Any], ...], knobs: tuple[tuple[str, Any], ...]
) -> Any:
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        return build_artifact(name, dict(fields), dict(knobs))


def artifact(name: str, fields: Any, **knobs: Any) -> Any:
    """With its PTX, which is what is executed; ptxas is not asked."""
    return _artifact(name, tuple(sorted(fields.items())), tuple(sorted(knobs.items())))


def kernel(which: str, launcher: Any = None, target: str = "sm90", **fields: Any) -> Any:
    """A kernel with the one that merges beside it; `target`: what names end with."""
    return sparse_kernel(artifact(f"mla_sparse_{which}_{target}", fields), launcher, artifact)


def alone(which: str, **fields: Any) -> Any:
    """The same, without."""
    return sparse_kernel(artifact(f"mla_sparse_{which}_sm90", fields))


def given(inputs: Any, **changes: Any) -> dict[str, Any]:
    """What a kernel is called with."""
    names = [name for name in vars(inputs) if name in inputs.__dataclass_fields__]
    return {**{name: getattr(inputs, name) for name in names if name != "config"}, **changes}


def right(made: Any, inputs: Any, outputs: Any, splits: int = 1) -> None:
    """Holds outputs against both oracles."""
    trial = MlaSparseTrial(SplitInputs(inputs, splits), order_of(made.artifact))
    names = ("o", "lse", "max_logits")
    if not isinstance(inputs, MlaSparsePrefillInputs):
        names = names[:2]
    found = dict(zip(names, outputs, strict=True))
    for oracle in (exact, rounded):
        expected = oracle(inputs, splits=trial.splits, order=order_of(made.artifact))
        for name, comparison in compare_outputs(inputs, expected, found).items():
            assert comparison.passed, (oracle.name, name, comparison)
