"""The emulator's bits beside a GPU's, for our Hopper kernels.

    python tests/gpu/emulated_bits.py write BITS.npz       # anywhere: every case in the emulator
    python tests/gpu/emulated_bits.py compare BITS.npz     # on an H200: the same cases, bit by bit

`write` runs each case in the modes latest and earliest, at the exact level, with the sanitizer, and
keeps what the kernel wrote, every output in full. `compare` makes the same inputs, launches the
same text and counts elements whose bits differ. A case whose text or inputs are others is not
compared. Exit code 1: a finding, modes that differ, or bits that differ.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

from gemm.problem import GemmConfig  # noqa: E402

from mlagen.artifact import Artifact  # noqa: E402
from mlagen.codegen import build  # noqa: E402
from mlagen.codegen.schedules import load  # noqa: E402
from mlagen.families.mla_decode.problem import MlaDecodeConfig  # noqa: E402
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig  # noqa: E402
from mlagen.family import family_of  # noqa: E402
from mlagen.launch import CudaLauncher, EmulatedLauncher, LaunchReport  # noqa: E402

GEMM = str(ROOT / "examples" / "gemm_bf16.py")
DECODE, MERGE = "mla_decode_sm90", "mla_decode_merge_sm90"
LENGTHS = (3, 260, 0, 140)


@dataclass(frozen=True)
class Case:
    """A kernel and a call of it."""

    name: str
    kernel: str
    problem: Mapping[str, Any] = field(default_factory=dict)
    knobs: Mapping[str, Any] = field(default_factory=dict)
    shape: Mapping[str, Any] = field(default_factory=dict)


def _decode(name: str, knobs: Mapping[str, Any] | None = None, **more: Any) -> Case:
    shape = {key: more.pop(key) for key in ("lengths", "split_keys", "blocks") if key in more}
    return Case(f"decode {name}", DECODE, more, knobs or {}, {"lengths": LENGTHS, **shape})


CASES = (
    _decode("128 heads", num_heads=128),
    _decode("16 heads, split", num_heads=16, split_keys=64),
    _decode("64 heads, 1000 keys", num_heads=64, lengths=(1000,)),
    _decode("8 heads, 4 tokens, window", num_heads=8, q_len=4, mask="sliding_window_causal[70]"),
    _decode("40 heads, pages of 16", num_heads=40, page_size=16, q_len=2),
    _decode("24 heads, pages of 1", num_heads=24, page_size=1),
    _decode("2 KV heads", num_heads=4, num_kv_heads=2, q_len=2),
    _decode("no mask", num_heads=24, page_size=192, mask="null", q_len=3),
    _decode("e4m3 cache", num_heads=64, cache_dtype="fp8_e4m3"),
    _decode("e4m3 cache and queries", num_heads=16, cache_dtype="fp8_e4m3", dtype="fp8_e4m3"),
    _decode("rope-aware rows", num_heads=64, cache_dtype="fp8_rope_aware"),
    _decode("rope-aware rows and queries", num_heads=16, cache_dtype="fp8_rope_aware",
            dtype="fp8_rope_aware"),
    _decode("persistent", {"persistent": 1}, num_heads=16, split_keys=64, blocks=2),
    _decode("persistent, 40 heads", {"persistent": 1}, num_heads=40, page_size=16, blocks=3),
    Case("merge 128 heads", MERGE, {"num_heads": 128}, shape={"partials": (2, 3, 8, 40)}),
    Case("gemm", GEMM, shape={"m": 300, "n": 260, "k": 200}),
    Case("gemm by cp.async", GEMM, knobs={"feed": "cp.async"}, shape={"m": 300, "n": 260, "k": 72}),
)  # fmt: skip


class Keeping:
    """A launcher that keeps what each launch wrote."""

    def __init__(self, launcher: Any) -> None:
        self.launcher = launcher
        self.kept: dict[str, np.ndarray] = {}

    def launch(self, artifact: Artifact, **call: Any) -> LaunchReport:
        report = self.launcher.launch(artifact, **call)
        for arg in artifact.manifest.args:
            if arg.tensor and arg.access != "read":
                array = np.ascontiguousarray(call["tensors"][arg.tensor])
                self.kept[arg.tensor] = array.view(f"u{array.itemsize}").copy()
        return report


class OnDevice:
    """A launcher of host arrays on the GPU: they are copied there and back."""

    def __init__(self) -> None:
        self.launcher = CudaLauncher()

    def launch(self, artifact: Artifact, *, tensors: Any, **call: Any) -> LaunchReport:
        import torch

        held = {name: self._given(torch, array) for name, array in tensors.items()}
        report = self.launcher.launch(artifact, tensors=held, **call)
        torch.cuda.synchronize()
        for name, array in tensors.items():
            raw = held[name].view(torch.uint8).cpu().numpy()
            array.reshape(-1).view(np.uint8)[:] = raw.reshape(-1)
        return report

    @staticmethod
    def _given(torch: Any, array: np.ndarray) -> Any:
        raw = torch.from_numpy(np.ascontiguousarray(array).view(np.uint8).copy()).cuda()
        return raw.view(getattr(torch, array.dtype.name)).reshape(array.shape)


def built(case: Case) -> Artifact:
    if case.kernel == GEMM:
        return build(load(GEMM, "sm_90a"), GemmConfig(), knobs=dict(case.knobs))
    config = {DECODE: MlaDecodeConfig, MERGE: MlaDecodeMergeConfig}[case.kernel]
    return build(case.kernel, config(**case.problem), knobs=dict(case.knobs))


def arrays_of(value: Any) -> Iterator[np.ndarray]:
    """Every array of nested inputs."""
    if isinstance(value, np.ndarray):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from arrays_of(getattr(value, each.name))


def prepared(case: Case) -> tuple[Artifact, Any, str]:
    """The artifact, the trial, and a digest of the text and the inputs."""
    artifact = built(case)
    kind = family_of(artifact).kind(artifact.manifest.problem_type)
    inputs = kind.made(artifact, data="realistic", seed=0, **case.shape)
    digest = hashlib.sha256(artifact.manifest.text_sha256.encode())
    for array in arrays_of(inputs):
        digest.update(np.ascontiguousarray(array).view(np.uint8).tobytes())
    return artifact, kind.trial(inputs).planned(artifact), digest.hexdigest()


def write(path: Path, chosen: list[Case]) -> bool:
    kept: dict[str, np.ndarray] = {}
    good = True
    for case in chosen:
        artifact, trial, digest = prepared(case)
        found: list[dict[str, np.ndarray]] = []
        started = time.perf_counter()
        said = []
        for mode in ("latest", "earliest"):
            keeping = Keeping(EmulatedLauncher(mode=mode, exact=True))
            _, report = trial.run(artifact, keeping)
            said += [str(finding) for finding in report.emulation.findings]
            found.append(keeping.kept)
        same = all(np.array_equal(found[0][name], found[1][name]) for name in found[0])
        good = good and same and not said
        seconds = time.perf_counter() - started
        words = "the same bits in both modes" if same else "MODES DIFFER"
        print(f"{case.name}: {words}, {len(said)} findings, {seconds:.1f} s", *said[:3], flush=True)
        kept |= {f"{case.name}/{name}": array for name, array in found[0].items()}
        kept[f"{case.name}/digest"] = np.frombuffer(bytes.fromhex(digest), np.uint8)
    np.savez_compressed(path, **kept)
    return good


def compare(path: Path, chosen: list[Case]) -> bool:
    expected = np.load(path)
    launcher = OnDevice()
    good = True
    for case in chosen:
        artifact, trial, digest = prepared(case)
        if bytes(expected[f"{case.name}/digest"]).hex() != digest:
            print(f"{case.name}: NOT COMPARED, its text or its inputs are others", flush=True)
            good = False
            continue
        keeping = Keeping(launcher)
        trial.run(artifact, keeping)
        counts = {
            name: (int((expected[f"{case.name}/{name}"] != array).sum()), array.size)
            for name, array in keeping.kept.items()
        }
        differ = any(count for count, _ in counts.values())
        good = good and not differ
        shown = ", ".join(f"{name} {count} of {size}" for name, (count, size) in counts.items())
        print(f"{case.name}: {'DIFFER' if differ else 'equal'}: {shown}", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["write", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    told = parser.parse_args()
    chosen = [case for case in CASES if told.only in case.name]
    good = (write if told.verb == "write" else compare)(told.file, chosen)
    print("all equal" if good else "NOT ALL EQUAL")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
