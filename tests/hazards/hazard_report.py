"""Writes the generated parts of docs/hazards.md: the generator's table and the measurements.

python tests/hazards/hazard_report.py            prints them
python tests/hazards/hazard_report.py --write    puts them into docs/hazards.md
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from hazard_allowed import CHECKER, GENERATOR, Allowed, checker_differs, generator_differs
from hazard_checker import checker_states
from hazard_llvm import Measurement, measurements, version
from hazard_probes import LEFT_OUT, MATRIX_TABLE, UNPROVOKED, VECTOR_TABLE

from mlagen.targets.gfx950.codegen.hazards import (
    EXEC,
    HWREG,
    M0,
    ORDINARY_VALU,
    RULES,
    VCC,
    Chain,
    HazardKind,
    Rule,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hazards.md"
_NAMES = {
    "MFMA_F32": "f32 MFMA", "LDS_DMA": "LDS-DMA", "TRANS": "trans",
    "PARTIAL": "VALU moving its result", "CONVERT_PART": "conversion to a part",
    "PERMLANE": "permlane swap", "READLANE": "v_readlane",
    "WRITELANE": "v_writelane", "DIV_FMAS": "v_div_fmas", "DOT": "dot", "SETREG": "s_setreg",
    "GETREG": "s_getreg", "SENDMSG": "s_sendmsg", "MOVREL": "s_movrel",
}  # fmt: skip
_OPERANDS = {
    "vgpr_reads": "VGPR read", "vgpr_writes": "VGPR written", "src_ab": "SrcA, SrcB, scale",
    "src_c": "SrcC", "writes_not_c": "VGPR written, not SrcC", "store_data": "store data",
    "store_data_offset": "data of a buffer store with an SGPR offset",
    "sgpr_reads": "SGPR read", "sgpr_writes": "SGPR written", "lane_select": "lane select",
    "exec": "EXEC",
}  # fmt: skip
_CHAINS = {
    Chain.ANY: "", Chain.SAME: "; same opcode, SrcC = result", Chain.BROKEN: "; otherwise",
    Chain.SAME_OPCODE: "; same opcode", Chain.OTHER_OPCODE: "; other opcode",
}  # fmt: skip

_WITHIN = {EXEC: "EXEC", HWREG: "hardware register", M0: "M0", VCC: "VCC"}


def _kinds(kinds: HazardKind, without: HazardKind) -> str:
    names = []
    if kinds & ORDINARY_VALU == ORDINARY_VALU:
        names.append("any VALU")
        kinds &= ~ORDINARY_VALU
    names += [_NAMES.get(kind.name or "", kind.name or "") for kind in HazardKind if kind & kinds]
    text = ", ".join(names)
    if without:
        text += f" (not {_NAMES.get(without.name or '', without.name)})"
    return text


def _states(rule: Rule) -> str:
    if isinstance(rule.states, int):
        return str(rule.states)
    return " / ".join(str(rule.states[passes]) for passes in (2, 4, 8, 16))


def rules_section() -> str:
    """The generator's table."""
    lines = [
        "| rule | kind | first instruction: registers | second instruction: registers "
        "| wait states (2 / 4 / 8 / 16 passes) | source |",
        "|---|---|---|---|---|---|",
    ]
    notes: dict[str, int] = {}
    for rule in RULES:
        mark = ""
        if rule.stricter:
            mark = f" [{notes.setdefault(rule.stricter, len(notes) + 1)}]"
        within = f" ({_WITHIN[rule.within]})" if rule.within in _WITHIN else ""
        lines.append(
            f"| {rule.name} | {rule.relation} "
            f"| {_kinds(rule.producer, rule.not_producer)}: "
            f"{_OPERANDS[rule.produces.value]}{within} "
            f"| {_kinds(rule.consumer, rule.not_consumer)}: {_OPERANDS[rule.consumes.value]}"
            f"{_CHAINS[rule.chain]} | {_states(rule)} | {rule.source}{mark} |"
        )
    lines += ["", "Stricter than the guide:", ""]
    lines += [f"{number}. {text}" for text, number in notes.items()]
    lines += ["", "Rows of the guide that are left out:", ""]
    lines += [f"* {name}: {reason}" for name, reason in LEFT_OUT.items()]
    return "\n".join(lines)


def _cell(item: Measurement, checker: int | None) -> str:
    llvm = str(item.llvm) if item.exact else f"≤{item.llvm}"
    if not generator_differs(item) and not checker_differs(item, checker):
        return llvm
    return f"{llvm} / {item.generator} / {'?' if checker is None else checker}"


def _grid(items: list[tuple[Measurement, int | None]]) -> list[str]:
    rows = list(dict.fromkeys(item.probe.row for item, _ in items))
    columns = list(dict.fromkeys(item.probe.column for item, _ in items))
    cells = {(item.probe.row, item.probe.column): _cell(item, states) for item, states in items}
    lines = [
        f"| second \\ first | {' | '.join(rows)} |",
        "|" + "---|" * (len(rows) + 1),
    ]
    for column in columns:
        values = " | ".join(cells.get((row, column), "") for row in rows)
        lines.append(f"| {column} | {values} |")
    return lines


def _rows(items: list[tuple[Measurement, int | None]]) -> list[str]:
    lines = ["| first | second | wait states |", "|---|---|---|"]
    lines += [
        f"| {item.probe.row} | {item.probe.column} | {_cell(item, states)} |"
        for item, states in items
    ]
    return lines


def _differences(
    title: str, allowed: tuple[Allowed, ...], found: list[tuple[Measurement, int | None]]
) -> list[str]:
    """`found`: probes and what a table asks there instead of LLVM's wait states."""
    lines = [f"### {title}", ""]
    for entry in allowed:
        columns: dict[str, list[str]] = {}
        for item, states in found:
            if entry.covers(item, states):
                asked = "not decoded" if states is None else str(states)
                change = f"{item.llvm} → {asked}" if states != item.llvm else "within the stream"
                columns.setdefault(item.probe.column, []).append(f"{item.probe.row}: {change}")
        if columns:
            side = "Asks less, a known gap" if entry.gap else "Asks more"
            lines.append(f"* {side}: {entry.reason}.")
            lines += [f"  * {column}: {'; '.join(rows)}" for column, rows in columns.items()]
    return [*lines, ""]


def measured_section() -> str:
    """LLVM's padding for every probe beside both tables, and the differences."""
    items = list(zip(measurements(), checker_states(), strict=True))
    lines = [f"Measured with {version()}, {len(items)} probes.", ""]
    for table in dict.fromkeys(item.probe.table for item, _ in items):
        part = [(item, states) for item, states in items if item.probe.table == table]
        lines += [f"### {table[0].upper()}{table[1:]}", ""]
        lines += (_grid if table in (MATRIX_TABLE, VECTOR_TABLE) else _rows)(part)
        lines.append("")
    lines += _differences(
        "LLVM → generator",
        GENERATOR,
        [(item, item.generator) for item, _ in items if generator_differs(item)],
    )
    lines += _differences(
        "LLVM → checkers",
        CHECKER,
        [(item, states) for item, states in items if checker_differs(item, states)],
    )
    lines += ["### Rules that no probe reaches", ""]
    lines += [f"* {name}: {reason}" for name, reason in UNPROVOKED.items()]
    return "\n".join(lines)


def replace_section(page: str, name: str, text: str) -> str:
    """The page with the text between the marks of section `name` replaced."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"{PAGE} has no section {name!r}")
    return pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help=f"put the result into {PAGE.name}")
    arguments = parser.parse_args()
    rules, measured = rules_section(), measured_section()
    if not arguments.write:
        print(f"{rules}\n\n{measured}")
        return 0
    page = PAGE.read_text(encoding="utf-8")
    page = replace_section(replace_section(page, "rules", rules), "measured", measured)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
