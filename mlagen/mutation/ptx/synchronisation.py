"""Mutants of what synchronises: waits, arrivals, fences, barriers, registers, phases.

Most are what the audit's own mutants are, by class. Beside these: fences that the audit takes for
ordinary instructions, and arrivals that come before the last access that they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlagen.audit.ptx.changes import Change, changes
from mlagen.mutation.ptx.mutant import PtxMutant, TextEdit
from mlagen.mutation.ptx.mutated_kernel import FRESH, MutatedKernel
from mlagen.ptx import Instruction, Kind

_CLASS = {
    Kind.WGMMA_WAIT: "waits", Kind.BULK_WAIT: "waits", Kind.ASYNC_WAIT: "waits",
    Kind.MBARRIER_WAIT: "waits", Kind.BRANCH: "waits",
    Kind.WGMMA_COMMIT: "waits", Kind.BULK_COMMIT: "waits", Kind.ASYNC_COMMIT: "waits",
    Kind.MBARRIER_INIT: "arrivals", Kind.MBARRIER_ARRIVE: "arrivals",
    Kind.MBARRIER_EXPECT: "arrivals", Kind.ASYNC_ARRIVE: "arrivals",
    Kind.PROXY_FENCE: "fences", Kind.INIT_FENCE: "fences", Kind.WGMMA_FENCE: "fences",
    Kind.BARRIER: "barriers", Kind.WARP_BARRIER: "barriers",
    Kind.CLUSTER_ARRIVE: "barriers", Kind.CLUSTER_WAIT: "barriers",
    Kind.REGISTERS: "registers", Kind.BULK_LOAD: "copies",
}  # fmt: skip
_ARRIVES = (Kind.MBARRIER_ARRIVE, Kind.BARRIER)
# What an arrival tells of: it must not come before these.
_ACCESSES = (
    Kind.SHARED_LOAD, Kind.SHARED_STORE, Kind.GENERIC_LOAD, Kind.GENERIC_STORE, Kind.WGMMA_WAIT,
    Kind.BULK_STORE, Kind.BULK_WAIT, Kind.PROXY_FENCE, Kind.ASYNC_WAIT,
)  # fmt: skip
_FAR = 400  # instructions between an access and an arrival for it


def synchronisation_mutants(kernel: MutatedKernel) -> Iterator[PtxMutant]:
    """All of a kernel."""
    for change in changes(kernel.entry, kernel.text):
        if change.text != kernel.source(change.instruction):  # an empty change: a count of no text
            yield _made(kernel, change)
    for instruction, kind in kernel.each():
        if kind is Kind.PLAIN and instruction.name in ("fence", "membar"):
            yield kernel.mutant("fences", "fence removed", instruction, "")
        if kind in _ARRIVES and (kind is not Kind.BARRIER or "sync" not in instruction.parts):
            yield from _early(kernel, instruction)


def _made(kernel: MutatedKernel, change: Change) -> PtxMutant:
    kind = kernel.graph.kinds[change.instruction.index]
    named = "phases" if change.what == "the other parity" else _CLASS.get(kind, "phases")
    return kernel.mutant(named, change.what, change.instruction, change.text, change.excuse)


def _early(kernel: MutatedKernel, arrive: Instruction) -> Iterator[PtxMutant]:
    """The arrival before the last access in front of it; what it computes its operands by goes
    along, under names of its own."""
    if "expect_tx" in arrive.parts or arrive.guard:
        return  # tells of copies that come after it; a guard would have to go along
    access = _last_access(kernel, arrive.index)
    if access < 0:
        return
    between = [
        index
        for index in kernel.slice_of(list(kernel.graph.reads[arrive.index]), arrive.index)
        if index > access
    ]
    text = kernel.source(arrive)
    names: dict[str, str] = {}
    lines = []
    for number, index in enumerate(reversed(between)):
        (written,) = kernel.graph.writes[index]
        lines.append(kernel.source(kernel.entry.instructions[index]))
        names[written.partition("@")[0]] = f"{FRESH}{number}"
    outside = {
        name
        for index in (*between, arrive.index)
        for name in kernel.graph.reads[index]
        if "@" in name and name.partition("@")[0] not in names
    }
    if outside:
        return  # a register of a scope that the earlier place may not see
    moved = " ".join([*lines, text])
    for old, new in names.items():
        moved = moved.replace(f"{old},", f"{new},").replace(f"{old}]", f"{new}]")
        moved = moved.replace(f"{old} +", f"{new} +").replace(f"{old};", f"{new};")
    if names:
        moved = f"{{ .reg .b32 {', '.join(names.values())}; {moved} }}"
    before = kernel.entry.instructions[access].span[0]
    edits = (TextEdit(before, before, f"{moved} "), TextEdit(*arrive.span, ""))
    yield kernel.edited("arrivals", "moved before the last access", arrive, edits)


def _last_access(kernel: MutatedKernel, before: int) -> int:
    """The nearest access in front of an arrival, along straight code; -1: none."""
    kinds = kernel.graph.kinds
    for index in range(before - 1, max(before - _FAR, -1), -1):
        if kinds[index] in (Kind.BRANCH, Kind.EXIT) and not kernel.entry.instructions[index].guard:
            return -1
        if kinds[index] in _ACCESSES:
            return index
    return -1
