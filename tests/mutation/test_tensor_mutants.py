"""Mutants of tcgen05: of a kernel that one thread multiplies for, and of a CTA pair's."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from unittest.mock import patch

import pytest

from mlagen.artifact import Artifact
from mlagen.codegen import build
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.mutation.ptx.mutated_kernel import MutatedKernel
from mlagen.mutation.ptx.tensor_mutants import tensor_mutants
from mlagen.mutation.source import ArtifactSource
from mlagen.ptx import read_ptx
from mlagen.targets.nvidia.ptxas import PtxasResult

UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())


@cache
def built(heads: int) -> Artifact:
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        return build("mla_sparse_prefill_sm100", MlaSparsePrefillConfig(heads))


@pytest.mark.parametrize("heads", [8, 72])
def test_what_is_made(heads):
    text = built(heads).text
    (entry,) = read_ptx(text).entries
    made = list(tensor_mutants(MutatedKernel(text, entry)))
    assert len({mutant.name for mutant in made}) == len(made)
    count = Counter(mutant.operator for mutant in made)
    for word in ("commit", "cp", "wait::ld", "wait::st", "dealloc", "fence::after_thread_sync"):
        assert count[f"{word} removed"] == len(re.findall(rf"tcgen05\.{word}[.;]", text))
    products, copies = text.count("tcgen05.mma"), text.count("tcgen05.cp.")
    kept = len(re.findall(r"tcgen05\.mma\S+ \[[^\]]+\], \[", text))  # A in tensor memory
    assert copies and 0 < kept < products
    assert count["another N"] == count["B: start + 16 bytes"] == products
    assert count["A: start + 16 bytes"] == products - kept
    assert count["A: one column further"] == kept
    assert count["copied from: start + 16 bytes"] == copies
    touching = text.count("tcgen05.ld") + text.count("tcgen05.st")
    assert count["lanes of the next warp"] == touching
    assert count["one column further"] == touching + products + copies
    assert count["for the leader alone"] == text.count("multicast::cluster")
    for mutant in made[:: len(made) // 6]:
        assert read_ptx(mutant.apply(text)).entries, mutant.described


def test_the_emulator_judges_alone():
    assert ArtifactSource(built(8)).subject().judges == ("emulator",)
    with pytest.raises(ConfigError, match="follows no path"):
        ArtifactSource(built(8), judges=("audit",)).subject()
