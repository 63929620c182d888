"""Findings on registers, worded: missing waits, waits stricter than needed, wait states, bounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set

from mlagen.audit.gfx950.budget import OutOfSteps
from mlagen.audit.gfx950.causes import together
from mlagen.audit.gfx950.findings import Finding
from mlagen.audit.gfx950.states import TooClose
from mlagen.audit.gfx950.steps import CAPACITY, Queue, Step, names_of
from mlagen.audit.gfx950.waits import Unwaited, WaitReport
from mlagen.audit.gfx950.weak import let_through
from mlagen.audit.gfx950.witness import Ways
from mlagen.binary import KernelCode
from mlagen.binary.allocated import unallocated
from mlagen.binary.effects import effects
from mlagen.severity import ERROR, LETTER, Severity

_COUNTER = {"vm": "vmcnt", "lds": "lgkmcnt", "smem": "lgkmcnt"}


def missing_waits(
    kernel: KernelCode, steps: tuple[Step, ...], report: WaitReport, ways: Ways
) -> tuple[list[Finding], int]:
    """Instructions that use results in flight, by cause. Also how many were left without a path
    that shows them, because `ways` had no more steps."""
    uses: dict[tuple[int, Queue, bool], list[Unwaited]] = defaultdict(list)
    for one in report.unwaited.values():
        uses[one.step, steps[one.load].queue, one.overwrites].append(one)
    shown: list[Finding | None] = []
    base = _accumulators_from(kernel, steps)
    try:
        for (_, _, overwrites), found in sorted(uses.items()):
            shown.append(_missing(kernel, steps, ways, found, overwrites, base))
    except OutOfSteps:
        pass
    return together(finding for finding in shown if finding is not None), len(uses) - len(shown)


def _missing(
    kernel: KernelCode,
    steps: tuple[Step, ...],
    ways: Ways,
    found: list[Unwaited],
    overwrites: bool,
    base: int,
) -> Finding | None:
    found = sorted(found, key=lambda one: (one.newer, one.load))
    nearest = found[0]
    load, use = steps[nearest.load], steps[nearest.step]
    mask = 0
    for one in found:
        mask |= one.mask
    names = names_of(mask, base)
    needs = needed_wait(load.queue, nearest.newer)
    witness = ways.find(nearest.load, nearest.step)
    if witness is None:
        return None  # only where paths were merged: no single path shows it
    full = CAPACITY.get(load.queue)
    crowded = full is not None and nearest.newer >= full
    rule = "overwrite-in-flight" if overwrites else "missing-wait"
    severity: Severity = ERROR
    if crowded:
        rule, severity = "counter-capacity", LETTER  # whether it holds a wave back is a doubt
    elif load.queue == "smem" and witness.waits:
        rule = "smem-order"
    verb = "overwrites" if overwrites else "uses"
    others = f" and {len(found) - 1} more" if len(found) > 1 else ""
    message = (
        f"{use.ins} at {use.ins.offset:#x} {verb} {names}, which {load.ins} at "
        f"{load.ins.offset:#x}{others} may still be filling: it is reached {witness}"
    )
    weak = None
    if not crowded:
        waits = ways.weak_waits(witness, [one.load for one in found], nearest.step)
        weak = waits[-1] if waits else None
    if weak is not None:
        needs = weak.needs
        message += f"; {let_through(weak, waits)}"
    if crowded:
        message += (
            f"; {nearest.newer} later operations are outstanding, more than {needs.split('(')[0]} "
            f"counts, and a full counter is not known to hold a wave back"
        )
    found_at = Finding.at(rule, severity, kernel.name, (use.ins, load.ins), resource=names,
                          needs=needs, message=message)  # fmt: skip
    return found_at.changing(weak)


def needed_wait(queue: Queue, newer: int) -> str:
    """The weakest wait for a result with so many later operations. The highest count of a field
    asks for nothing, so one less is the most a wait can say."""
    count = 0 if queue == "smem" else min(newer, CAPACITY[queue] - 1)
    return f"{_COUNTER[queue]}({count})"


def _accumulators_from(kernel: KernelCode, steps: tuple[Step, ...]) -> int:
    """First register to be called aN; out of reach for code that names none."""
    return kernel.descriptor.accum_offset if _names_accumulators(steps) else 1 << 16


def _names_accumulators(steps: tuple[Step, ...]) -> bool:
    return any(op.kind == "a" for step in steps for _, op in step.ins.operands)


def strict_waits(
    kernel: KernelCode,
    steps: tuple[Step, ...],
    report: WaitReport,
    blamed: Set[tuple[int, str]],
) -> list[Finding]:
    """One piece of advice for each s_waitcnt that could be weaker, alone. `blamed`: byte offset and
    counter of waits that an error passes: they ask for too little, and nothing else is said."""
    found = []
    for index, use in sorted(report.uses.items()):
        step = steps[index]
        assert step.wait is not None
        vm, lgkm = step.wait
        parts, weaker = [], []
        for name, given, full, weakest in (
            ("vmcnt", vm, CAPACITY["vm"], use.vm),
            ("lgkmcnt", lgkm, CAPACITY["lds"], use.lgkm),
        ):
            if given >= full or (weakest is not None and weakest <= given):
                continue
            if (step.ins.offset, name) in blamed:
                continue
            counter = "vm" if name == "vmcnt" else "lgkm"
            if weakest is None or weakest >= full:
                why = (
                    "another wait covers it too, or nothing uses it"
                    if counter in use.covered
                    else "nothing outstanding that it would cover"
                )
                parts.append(f"{name}({given}) is not needed ({why})")
                weaker.append(f"no {name}")
            else:
                less = f"{name}({weakest}), {weakest - given} weaker"
                parts.append(f"{name}({given}) could be {less}")
                weaker.append(f"{name}({weakest})")
        if parts:
            told = f"{step.ins} at {step.ins.offset:#x}: {'; '.join(parts)}"
            found.append(Finding.at("stricter-wait", "advice", kernel.name, (step.ins, None),
                                    resource="", needs=" ".join(weaker), message=told))  # fmt: skip
    return found


def outside(kernel: KernelCode, steps: tuple[Step, ...]) -> list[Finding]:
    """Instructions that name registers beyond those that the descriptor allocates. What is indexed
    by M0 is not known."""
    found = []
    named = _names_accumulators(steps)
    for step in steps:
        if step.indexed:
            continue
        ins = step.ins
        effect = effects(ins, kernel.descriptor.accum_offset)
        name, has = unallocated(ins, effect, kernel.descriptor, named)
        if name:
            message = f"{ins} at {ins.offset:#x} uses {name}; the kernel allocates {has}"
            found.append(Finding.at("register-bounds", "error", kernel.name, (ins, None),
                                    resource=name, needs="", message=message))  # fmt: skip
    return together(found)


def close_pairs(
    kernel: KernelCode,
    steps: tuple[Step, ...],
    found: dict[tuple[int, int], TooClose],
) -> list[Finding]:
    """Pairs of instructions that want wait states, by cause."""
    base = _accumulators_from(kernel, steps)
    return together(_close(kernel, steps, one, base) for _, one in sorted(found.items()))


def _close(kernel: KernelCode, steps: tuple[Step, ...], one: TooClose, base: int) -> Finding:
    first, second = steps[one.producer].ins, steps[one.consumer].ins
    names = names_of(one.mask, base)
    message = (
        f"{second} at {second.offset:#x} comes {one.have} wait states after {first} at "
        f"{first.offset:#x}; {names} needs {one.need}"
    )
    if one.held_back:
        message += ", though matrix instructions between them keep the matrix pipe busy"
    elif one.by_letter:
        message += ", though kernels that AMD ships, or that LLVM makes, have no more"
    severity: Severity = LETTER if one.by_letter else ERROR
    needs = f"s_nop {one.need - one.have - 1}"
    return Finding.at("wait-states", severity, kernel.name, (second, first), resource=names,
                      needs=needs, message=message)  # fmt: skip
