"""How many planted defects the static audit tells, and how many a run: the table of docs/audit.md.

    mlagen build mha_prefill_v2 --set num_heads=4 --set num_kv_heads=2 -o out/mha
    MLAGEN_AITER=.../hsa/gfx950 python tests/foreign/recall_report.py out/mha --write

Mutants are those of `mlagen audit --mutate`: a wait weaker by one or gone, a barrier or wait states
gone. They are put into two of AITER's objects and into the artifacts named, and each is held
against what is found in the kernel as it was. The audit tells a mutant by an error that the
original has not. A run tells it by a new finding of the sanitizer, in mode "latest" and, where that
is silent, "random" twice; races count by the stretches of code between barriers that they lie in,
because a race that the original has shows other pairs whenever the timing changes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import aiter_fmha
import aiter_mla_prefill as prefill
from aiter import missing, object_file

from mlagen.artifact import read_artifact
from mlagen.audit.gfx950 import CodeMutant, audit_kernel, code_mutants
from mlagen.audit.gfx950.lds.lds_program import LdsProgram
from mlagen.audit.gfx950.mutants import draw
from mlagen.binary import KernelCode, load_code_object
from mlagen.emulator import Mode, SanitizerFinding
from mlagen.errors import MlagenError
from mlagen.families.mha_prefill.kernel import MhaKernel
from mlagen.families.mha_prefill.made_up import mha_inputs
from mlagen.launch.emulated import EmulatedLauncher

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
FMHA = "fmha_v3_fwd/fwd_hd128_bf16.co"
MLA = "mla/mla_pfl_qh192_vh128_m32x8_n128x1_causal0.co"
TOLD = ("both", "audit alone", "run, audit as advice", "run alone", "neither")
RUNS: tuple[tuple[Mode, int], ...] = (("latest", 1), ("random", 1), ("random", 2))

Key = tuple[object, ...]
Launch = Callable[[bytes, Mode, int], Iterable[SanitizerFinding]]
"""Code object, mode, seed -> findings of launches that cover the code."""


def fmha(code: bytes, mode: Mode, seed: int) -> Iterable[SanitizerFinding]:
    """1 to 11 tiles of 64 keys, whole and ragged."""
    for keys in (700, 300, 50, 64, 120, 190, 256):
        problem = aiter_fmha.Problem(FMHA, ((250, keys),))
        yield from aiter_fmha.launch(problem, code, mode, seed)[0].findings


def mla(code: bytes, mode: Mode, seed: int) -> Iterable[SanitizerFinding]:
    """1 to 5 tiles of 128 keys, whole and ragged; two work items of a workgroup, one in parts."""
    for keys in (600, 450, 60, 128, 200, 384):
        problem = prefill.Prefill(1, (40,), (keys,), False, False, seed=1)
        yield from prefill.launch(code, problem, [problem.tiles()], mode, seed).findings
    problem = prefill.Prefill(1, (40, 21), (333, 150), False, False, seed=1)
    first, other = problem.tiles()
    parts = prefill.cut(first, 128, 0)
    yield from prefill.launch(code, problem, [[parts[0], other], [parts[1]]], mode, seed).findings


def ours(folder: Path, code: bytes, mode: Mode, seed: int) -> Iterable[SanitizerFinding]:
    """1 to 8 tiles of 64 keys, the last one ragged and not masked, and 5 and 8 whole ones that a
    causal mask cuts; one head."""
    artifact = replace(read_artifact(folder), code=code)
    launcher = EmulatedLauncher(
        mode=mode, seed=seed, workgroups=[(0, 0, 0)], allow_unproved=True
    )  # fmt: skip
    kernel = MhaKernel(artifact, launcher)
    for keys in (500, 300, 30, 100, 170, 200, 370, 430, 320, 512):
        start = keys - 256 if keys % 64 == 0 else keys
        inputs = mha_inputs(kernel.config, seq_len=256, num_keys=keys, start_pos=start)
        report = kernel.run(inputs).report
        assert report is not None and report.emulation is not None
        yield from report.emulation.findings


@dataclass(frozen=True)
class Subject:
    """A kernel to plant defects in, with its launches."""

    name: str
    code: bytes
    launch: Launch

    def kernel(self) -> KernelCode:
        return load_code_object(self.code).kernel()


class Judge:
    """Tells mutants of one kernel, from what the original shows."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.kernel = subject.kernel()
        self.start = subject.code.index(self.kernel.code)
        self.stretch = LdsProgram(self.kernel).stretch
        self.known = self._audited(self.kernel)
        self.shown = {key for mode, seed in RUNS for key in self._run(subject.code, mode, seed)}

    def __call__(self, mutant: CodeMutant) -> str:
        """Who tells it: one of TOLD."""
        changed = mutant.apply(self.kernel)
        new = {severity for severity, *_ in self._audited(changed) - self.known}
        whole = bytearray(self.subject.code)
        whole[self.start : self.start + len(changed.code)] = changed.code
        run = any(self._told(bytes(whole), mode, seed) for mode, seed in RUNS)
        if "error" in new:
            return TOLD[0 if run else 1]
        return TOLD[(2 if "advice" in new else 3) if run else 4]

    def _told(self, code: bytes, mode: Mode, seed: int) -> bool:
        try:
            return any(key not in self.shown for key in self._run(code, mode, seed))
        except MlagenError:  # it does not end, or ends in an instruction that is none
            return True

    @staticmethod
    def _audited(kernel: KernelCode) -> set[Key]:
        found = audit_kernel(kernel).findings
        return {
            (f.severity, place.rule, place.pc, place.other_pc, place.resource, place.needs)
            for f in found
            if f.rule != "stricter-wait"
            for place in f.places
        }

    def _run(self, code: bytes, mode: Mode, seed: int) -> Iterator[Key]:
        return map(self._key, self.subject.launch(code, mode, seed))

    def _key(self, f: SanitizerFinding) -> Key:
        if f.kind.startswith("race-") and f.other_pc is not None:
            return "race", frozenset((self.stretch.get(f.pc), self.stretch.get(f.other_pc)))
        return f.kind, f.pc, f.other_pc


_JUDGES: dict[str, Judge] = {}


def judged(subject: Subject, mutant: CodeMutant) -> str:
    """In a process of its own: the original is looked at once in each."""
    if subject.name not in _JUDGES:
        _JUDGES[subject.name] = Judge(subject)
    return _JUDGES[subject.name](mutant)


def subjects(artifacts: Iterable[Path]) -> list[Subject]:
    """AITER's two, and the artifacts."""
    found = [
        Subject(Path(FMHA).stem, object_file(FMHA).read_bytes(), fmha),
        Subject(Path(MLA).stem, object_file(MLA).read_bytes(), mla),
    ]
    for folder in artifacts:
        artifact = read_artifact(folder)
        found.append(Subject(artifact.manifest.kernel, artifact.code, partial(ours, folder)))
    return found


def main(arguments: list[str]) -> None:
    """Prints the table, and each mutant that nobody or one alone tells."""
    parser = argparse.ArgumentParser()
    parser.add_argument("artifacts", nargs="*", type=Path)
    parser.add_argument("--sample", type=int, default=150, help="mutants of each kernel; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--match", default="", help="only kernels of this name")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    why = missing()
    if why is not None:
        sys.exit(why)
    lines = [f"| kernel | mutation | mutants | of | {' | '.join(TOLD)} |", "|---" * 9 + "|"]
    with ProcessPoolExecutor(options.jobs) as pool:
        for subject in subjects(options.artifacts):
            if options.match not in subject.name:
                continue
            whole = code_mutants(subject.kernel())
            chosen = draw(whole, options.sample, options.seed)
            counts: Counter[tuple[str, str]] = Counter()
            for mutant, told in zip(
                chosen, pool.map(partial(judged, subject), chosen), strict=True
            ):
                what = f"{mutant.kind}, {mutant.operator}"
                counts[what, told] += 1
                if told != "both":
                    print(f"{subject.name}: {told}: {mutant.pc:#x} {mutant.before}: {mutant.what}",
                          flush=True)  # fmt: skip
            for what in dict.fromkeys(f"{m.kind}, {m.operator}" for m in whole):
                row = [counts[what, told] for told in TOLD]
                of = sum(f"{m.kind}, {m.operator}" == what for m in whole)
                cells = (f"`{subject.name}`", what, sum(row), of, *row)
                lines.append(f"| {' | '.join(map(str, cells))} |")
    table = "\n".join(lines) + "\n"
    print(table)
    if options.write:
        marked = re.compile(r"(<!-- recall: begin -->\n).*?(<!-- recall: end -->)", re.DOTALL)
        PAGE.write_text(marked.sub(lambda m: m[1] + table + m[2], PAGE.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
