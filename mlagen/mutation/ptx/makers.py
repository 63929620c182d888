"""All mutants of a kernel, by class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mlagen.mutation.ptx import ORDER
from mlagen.mutation.ptx.addressing import copy_mutants, descriptor_mutants, swizzle_mutants
from mlagen.mutation.ptx.mutant import PtxMutant
from mlagen.mutation.ptx.mutated_kernel import MutatedKernel
from mlagen.mutation.ptx.synchronisation import synchronisation_mutants
from mlagen.mutation.ptx.tensor_mutants import tensor_mutants
from mlagen.mutation.ptx.value_mutants import value_mutants

CLASSES = (*ORDER, "values")
_MAKERS: Sequence[tuple[tuple[str, ...], Callable[[MutatedKernel], Iterable[PtxMutant]]]] = (
    (("waits", "arrivals", "fences", "barriers", "registers", "phases", "copies"),
     synchronisation_mutants),
    (("descriptors",), descriptor_mutants),
    (("waits", "arrivals", "fences", "descriptors"), tensor_mutants),
    (("copies",), copy_mutants),
    (("swizzle",), swizzle_mutants),
    (("values",), value_mutants),
)  # fmt: skip


def make_mutants(kernel: MutatedKernel, classes: Sequence[str] = ORDER) -> list[PtxMutant]:
    """All mutants of some classes, class by class, each text once."""
    found: dict[str, PtxMutant] = {}
    for makes, maker in _MAKERS:
        if not set(makes) & set(classes):
            continue
        for made in maker(kernel):
            if made.kind in classes:
                found.setdefault(made.name, made)
    order = {name: number for number, name in enumerate(CLASSES)}
    return sorted(found.values(), key=lambda made: order[made.kind])
