"""What each error of the static audit in AITER's objects is: the classes of docs/foreign_audit.md.

An error outside them has no verdict yet, and a test fails.

    MLAGEN_AITER=.../hsa/gfx950 python tests/foreign/audit_verdicts.py [--match TEXT] [--jobs N]
        [--launch] [--seen FILE]

counts the places of each class, object by object, and the findings that stand for them: one error
has many places where one wait is missing in copies of the code. `--launch` also runs the objects on
the emulator (see `launched`) and counts how many of the places a run shows as well; the pairs of
instructions that runs found are kept in the file that `--seen` names, and taken from there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from aiter import MODES, missing, object_file, objects
from mla_verdicts import to_lds

from mlagen.audit.gfx950 import Finding, InstructionPair, KernelAudit, audit_kernel
from mlagen.audit.gfx950.lds.lds_program import LdsProgram
from mlagen.binary import KernelCode, load_code_object
from mlagen.binary.effects import is_matrix
from mlagen.binary.flow import read_flow
from mlagen.emulator import SanitizerFinding as Seen

FOLDERS = ("fmha_v3_fwd", "mla", "mla_v4")

OPERAND = "an operand from LDS is used before its wait"
FULL = "an operand from LDS is used after a full counter"
INDEX = "a page index is used before its wait"
SCALE = "a scale is used before its wait"
STALE_INDEX = "a register is used for LSE while a page index that nobody needs is on its way"
BEHIND_MATRIX = "fewer wait states than LLVM pads, a matrix instruction between"
SHORT = "fewer wait states than LLVM pads"
REFILL = "a buffer in LDS is refilled without a barrier"
REFILL_OWN = "a load to LDS and reads of it by the same wave, without a wait between"
FILL_READ_EARLY = "a load to LDS is read by another wave without a barrier after its wait"
EXCHANGE = "waves exchange data in LDS without a barrier, or without a wait before it"
SCRATCH = "LDS is used for scratch data while a load to it is outstanding"
TWICE = "two loads to LDS overlap"

CLASSES = {
    "O": OPERAND, "C": FULL, "I": INDEX, "S": SCALE, "Y": STALE_INDEX, "m": BEHIND_MATRIX,
    "w": SHORT, "R": REFILL, "r": REFILL_OWN, "F": FILL_READ_EARLY, "X": EXCHANGE, "D": SCRATCH,
    "T": TWICE,
}  # fmt: skip

# What the emulator calls the findings of a class.
_SEEN_AS = {OPERAND: {"missing-wait"}, FULL: {"missing-wait"}, INDEX: {"missing-wait"},
            SCALE: {"missing-wait"}, STALE_INDEX: {"overwrite-in-flight"},
            BEHIND_MATRIX: {"wait-states"}, SHORT: {"wait-states"}}  # fmt: skip

Pair = tuple[str, int, int | None]
"""What a run found: kind, and both places."""


Shown = Finding | InstructionPair
"""What a class is for: a place of an error in registers, or an error in LDS, which stands for all
pairs between two stretches of code without a barrier."""


def verdict(kernel: KernelCode, error: Shown) -> str | None:
    """The class of an error; None: it fits none."""
    mine, other, rule = error.asm, error.other_asm, error.rule
    if rule in ("missing-wait", "counter-capacity", "smem-order"):
        if other.startswith("ds_read") and mine.startswith("v_mfma"):
            return FULL if rule == "counter-capacity" else OPERAND
        if other.startswith("buffer_load_dword v") and mine.startswith(("v_mul", "v_mov_b32_dpp")):
            return INDEX
        scale = other.startswith("s_load_dword s") and mine.startswith(("v_mov", "v_mul_f32"))
        return SCALE if scale else None
    if rule == "overwrite-in-flight":
        return STALE_INDEX if other.startswith("buffer_load_dword v") else None
    if rule == "wait-states":
        maximum = other.startswith("v_mfma") and mine.startswith(("v_max3", "v_mov_b32"))
        rescaled = other.startswith("v_mul_f32") and mine.startswith("v_mfma")
        if maximum or rescaled:
            return BEHIND_MATRIX if matrix_between(kernel, error) else SHORT
        return SHORT if other.startswith("v_cvt_pk_fp8") and "permlane" in mine else None
    if rule in ("lds-raw", "lds-war", "lds-waw"):
        return _order(error)
    return None


def _order(error: Shown) -> str:
    loads = to_lds(error.asm), to_lds(error.other_asm)
    if all(loads):
        return TWICE
    if not any(loads):
        return EXCHANGE
    if "ds_write" in error.asm + error.other_asm:
        return SCRATCH
    if error.needs.endswith("before it"):  # of one wave, which a wait alone would order
        return REFILL_OWN
    return REFILL if error.rule == "lds-war" else FILL_READ_EARLY


def matrix_between(kernel: KernelCode, error: Shown) -> bool:
    """Whether every way from the one to the other passes a matrix instruction.

    It occupies the same pipe, and cannot start before the one before it leaves the first stage.
    """
    flow = read_flow(kernel.instructions)
    at = {ins.offset: number for number, ins in enumerate(flow.instructions)}
    assert error.other_pc is not None
    start, goal = at[error.other_pc], at[error.pc]
    last = {block.last: block for block in flow.blocks}
    met, work = {start}, deque([start])
    while work:
        here = work.popleft()
        block = last.get(here)
        following = (
            [here + 1] if block is None else [flow.blocks[b].first for b in block.successors]
        )
        for number in following:
            if number == goal:
                return False
            if number not in met and not is_matrix(flow.instructions[number]):
                met.add(number)
                work.append(number)
    return True


@dataclass(frozen=True)
class Judged:
    """The errors of one object with their classes, place by place, and the time it took.
    `findings`: how many errors there are of each class, by their first place."""

    path: str
    kernel: KernelCode
    audit: KernelAudit
    classes: tuple[tuple[Shown, str | None], ...]
    findings: Counter[str]
    seconds: float


def judge(path: str) -> Judged:
    """Audit one object below the folder of `MLAGEN_AITER`."""
    kernel = load_code_object(object_file(path).read_bytes()).kernel()
    start = time.process_time()
    audit = audit_kernel(kernel)
    seconds = time.process_time() - start
    classes: list[tuple[Shown, str | None]] = []
    findings: Counter[str] = Counter()
    for error in audit.errors:
        shown: tuple[Shown, ...] = (error,) if error.rule.startswith("lds-") else error.places
        judged = [(one, verdict(kernel, one)) for one in shown]
        findings[judged[0][1] or "?"] += 1
        classes += judged
    return Judged(path, kernel, audit, tuple(classes), findings, seconds)


LENGTHS = (32, 64, 100, 128, 160, 260)
"""Keys of the launches below: whole tiles, which leave loops where the launches of test_aiter_mla
do not, and others."""


def launched(path: str) -> set[Pair]:
    """The pairs that the launches of an object show: those of its tests in all modes, and of the
    mla objects more numbers of keys in "latest"."""
    outcomes = _fmha(path) if path.startswith("fmha") else _mla(path)
    return {(f.kind, f.pc, f.other_pc) for found in outcomes for f in found}


def _fmha(path: str) -> Iterator[tuple[Seen, ...]]:
    import aiter_fmha

    code = object_file(path).read_bytes()
    for lengths in (((300, 700),), ((700, 300),), ((200, 300),)):
        for mode in MODES:
            yield aiter_fmha.launch(aiter_fmha.Problem(path, lengths), code, mode, 3)[0].findings


def _mla(path: str) -> Iterator[tuple[Seen, ...]]:
    import aiter_mla as mla
    import aiter_mla_prefill

    for case in (*mla.CASES, *aiter_mla_prefill.CASES):
        if case.path == path:
            for mode in MODES:
                yield case.run(mode, 1).findings
    kernel, code = mla.KERNELS.get(Path(path).stem), object_file(path).read_bytes()
    for keys in LENGTHS if kernel is not None else ():
        of = mla.problem(kernel, (keys,))
        if not kernel.persistent:
            yield mla.launch_split(code, kernel, of, 1, "latest", 1).findings
            continue
        items = [[mla.whole(kernel, of, 0)]]
        yield mla.launch_persistent(code, kernel, of, items, "latest", 1).findings
        if keys == 128:
            items = [list(mla.halves(kernel, of, 0, 64, 0))]
            yield mla.launch_persistent(code, kernel, of, items, "latest", 1).findings


def confirmed(judged: Judged, seen: Iterable[Pair]) -> set[Shown]:
    """The errors that a run shows too.

    For registers: the same instruction uses a result too early. For LDS, where one error stands for
    all pairs between two stretches of code without a barrier: a race between these stretches.
    """
    stretch = LdsProgram(judged.kernel).stretch
    uses = {(kind, pc) for kind, pc, _ in seen}
    races = {
        frozenset((stretch[pc], stretch[other]))
        for kind, pc, other in seen
        if kind.startswith("race-") and other is not None
    }
    return {
        error
        for error, name in judged.classes
        if (
            any((kind, error.pc) in uses for kind in _SEEN_AS[name])
            if name in _SEEN_AS
            else error.other_pc is not None
            and frozenset((stretch[error.pc], stretch[error.other_pc])) in races
        )
    }


def _seen(path: str, file: Path | None, launch: bool) -> set[Pair] | None:
    """From the file, else from runs; None where neither is wanted, or nothing launches it."""
    if file is not None and file.exists():
        for line in file.read_text().splitlines():
            known, pairs = json.loads(line)
            if known == path:
                return {(kind, pc, other) for kind, pc, other, *_ in pairs}
    if not launch or path.startswith("mla_v4"):
        return None
    found = launched(path)
    if file is not None:
        with file.open("a") as out:
            out.write(json.dumps([path, sorted(found, key=str)]) + "\n")
    return found


def _row(
    path: str, file: Path | None, launch: bool
) -> tuple[Judged, Counter[str], Counter[str] | None]:
    judged = judge(path)
    counts = Counter(name or "?" for _, name in judged.classes)
    seen = _seen(path, file, launch)
    if seen is None:
        return judged, counts, None
    sure = confirmed(judged, seen)
    return judged, counts, Counter(name or "?" for e, name in judged.classes if e in sure)


def main(arguments: list[str]) -> None:
    """Prints both tables, and every error without a verdict."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--match", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--launch", action="store_true")
    parser.add_argument("--seen", type=Path)
    options = parser.parse_args(arguments)
    why = missing()
    if why is not None:
        sys.exit(why)
    paths = [p for folder in FOLDERS for p in objects(folder) if options.match in p]
    total: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    sure: Counter[str] = Counter()
    having: Counter[str] = Counter()
    findings: Counter[str] = Counter()
    unclassified: list[str] = []
    seconds = 0.0
    print("| object | places | errors | CPU s |", "| --- | --- | --- | --- |", sep="\n")
    with ProcessPoolExecutor(options.jobs) as pool:
        work = partial(_row, file=options.seen, launch=options.launch)
        for judged, counts, agreed in pool.map(work, paths):
            codes = " ".join(f"{k}{counts[v]}" for k, v in CLASSES.items() if counts[v])
            print(f"| `{judged.path.removesuffix('.co')}` | {codes or 'none'} "
                  f"| {judged.findings.total()} | {judged.seconds:.1f} |", flush=True)  # fmt: skip
            findings += judged.findings
            seconds += judged.seconds
            total += counts
            having.update(counts.keys())
            if agreed is not None:
                ran += counts
                sure += agreed
            unclassified += [
                f"{judged.path}: {error.rule} at {error.pc:#x}: {error.asm} after {error.other_asm}"
                for error, name in judged.classes
                if name is None
            ]
    print("\n| class | objects | errors | places | of objects that ran | shown by a run |",
          "| --- | --- | --- | --- | --- | --- |", sep="\n")  # fmt: skip
    for key, name in CLASSES.items():
        print(f"| {key}, {name} | {having[name]} | {findings[name]} | {total[name]} "
              f"| {ran[name]} | {sure[name]} |")  # fmt: skip
    print(f"\n{len(paths)} objects, {findings.total()} errors in {total.total()} places, "
          f"{seconds:.0f} CPU seconds")  # fmt: skip
    print(*(f"no verdict: {line}" for line in unclassified), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
