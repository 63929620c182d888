"""The generator's and the checkers' wait-state tables against the padding that LLVM emits."""

from __future__ import annotations

import importlib.util

import pytest
from hazard_allowed import CHECKER, GENERATOR, checker_differs, generator_differs
from hazard_llvm import Measurement, available, measurements, unprovoked, version
from hazard_probes import PROBES, UNPROVOKED
from hazard_report import PAGE, measured_section, replace_section, rules_section

from mlagen.targets.gfx950.codegen.hazards import M0, RULES, VCC, HazardInfo, HazardKind

DOCUMENTED_VERSION = "clang version 22.1.8"
needs_llvm = pytest.mark.skipif(
    not available(), reason="the ziglang wheel is not installed (pip install 'mlagen[amd]')"
)
needs_checker = pytest.mark.skipif(
    importlib.util.find_spec("tinygrad") is None,
    reason="the decoder's tables are not installed (pip install 'mlagen[emulator]')",
)


def _describe(item: Measurement) -> str:
    steps = "\n".join(
        f"      {step.text}: LLVM {step.llvm}, generator {step.generator} "
        f"({', '.join(unmet.rule.name for unmet in step.unmet)})"
        for step in item.stream
        if step.llvm != step.generator
    )
    return (
        f"{item.probe.name}\n    {item.producer}\n    {item.consumer}\n    LLVM "
        f"{'' if item.exact else 'at most '}{item.llvm}, generator {item.generator}\n{steps}"
    )


def _related(first: HazardInfo, second: HazardInfo) -> int:
    """Registers that tie two instructions together, in any direction."""
    reads = second.sgpr_reads | second.lane_select
    if second.kind & (HazardKind.LDS_DMA | HazardKind.SENDMSG):
        reads |= M0
    if second.kind & HazardKind.DIV_FMAS:
        reads |= VCC
    vectors = first.vgpr_writes & (second.vgpr_reads | second.vgpr_writes)
    overwritten = first.vgpr_reads & second.vgpr_writes | first.sgpr_reads & second.sgpr_writes
    return vectors | overwritten | first.sgpr_writes & reads


# Pairs tied by something that is no operand: EXEC, a hardware register, VCCZ, M0 as an index.
_IMPLICIT = {
    "s_and_saveexec", "s_setreg", "s_setreg MODE", "s_set_gpr_idx_on",
}  # fmt: skip


def test_there_is_a_probe_or_a_reason_for_every_rule() -> None:
    names = {rule.name for rule in RULES}
    assert set(UNPROVOKED) <= names
    assert all(UNPROVOKED.values())
    assert len({probe.name for probe in PROBES}) == len(PROBES)


@needs_llvm
def test_probes_measure_what_they_say() -> None:
    """Both instructions are there and tied by a register: a 0 means that none is needed."""
    for item in measurements():
        first, second = (item.stream[index] for index in item.pair)
        if item.probe.row in _IMPLICIT or item.probe.column == "s_cbranch_vccz":
            continue
        assert _related(first.info, second.info), _describe(item)
    assert unprovoked() == tuple(rule.name for rule in RULES if rule.name in UNPROVOKED)


@needs_llvm
def test_generator_against_llvm() -> None:
    different = [item for item in measurements() if generator_differs(item)]
    unexplained = [
        _describe(item)
        for item in different
        if not any(allowed.covers(item, item.generator) for allowed in GENERATOR)
    ]
    assert not unexplained, "\n".join(unexplained)
    lax = [
        _describe(item)
        for item in measurements()
        if any(step.generator < step.llvm for step in item.stream)
    ]
    assert not lax, "the generator pads less than LLVM:\n" + "\n".join(lax)


@needs_llvm
@needs_checker
def test_checkers_against_llvm() -> None:
    from hazard_checker import checker_states

    different = [
        (item, states)
        for item, states in zip(measurements(), checker_states(), strict=True)
        if checker_differs(item, states)
    ]
    unexplained = [
        f"{_describe(item)}      checkers: {states}"
        for item, states in different
        if not any(allowed.covers(item, states) for allowed in CHECKER)
    ]
    assert not unexplained, "\n".join(unexplained)


@needs_llvm
@needs_checker
def test_listed_differences_still_are_differences() -> None:
    from hazard_checker import checker_states

    items = list(zip(measurements(), checker_states(), strict=True))
    asked = [(item, item.generator) for item, _ in items if generator_differs(item)]
    checked = [(item, states) for item, states in items if checker_differs(item, states)]
    for name, allowed, different in (
        ("GENERATOR", GENERATOR, asked),
        ("CHECKER", CHECKER, checked),
    ):
        stale = [
            f"{entry.table}: {entry.reason}"
            for entry in allowed
            if not any(entry.covers(item, states) for item, states in different)
        ]
        assert not stale, f"agrees now, remove from hazard_allowed.{name}:\n" + "\n".join(stale)


def test_documented_rules_are_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert replace_section(page, "rules", rules_section()) == page, (
        "run: python tests/hazards/hazard_report.py --write"
    )


@needs_llvm
@needs_checker
def test_documented_measurements_are_current() -> None:
    if version() != DOCUMENTED_VERSION:
        pytest.skip(f"docs/hazards.md was measured with {DOCUMENTED_VERSION}, this is {version()}")
    page = PAGE.read_text(encoding="utf-8")
    assert replace_section(page, "measured", measured_section()) == page, (
        "run: python tests/hazards/hazard_report.py --write"
    )
