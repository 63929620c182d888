"""Bundles read back, and what runs of them give against their references."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from compiler_case import Expected

from mlagen.emulator.launching.scalars import DTYPES


@dataclass(frozen=True)
class Bundle:
    """A folder that `tests/compilers/bundle.py` wrote. `buffers`: as they are before the launch."""

    folder: Path
    launch: dict[str, Any]
    about: dict[str, Any]
    buffers: dict[str, np.ndarray]

    @classmethod
    def read(cls, folder: Path) -> Bundle:
        launch = tomllib.loads((folder / "launch.toml").read_text())
        about = json.loads((folder / "case.json").read_text())
        buffers = {}
        for name, told in launch["buffers"].items():
            if "file" in told:
                array = np.load(folder / told["file"]).view(DTYPES[told["dtype"]])
                assert array.shape == tuple(told["shape"]), (folder, name)
            else:
                array = np.full(told["bytes"], 0xFF, np.uint8)
            buffers[name] = np.ascontiguousarray(array)
        return cls(folder, launch, about, buffers)

    def expected(self, output: str) -> Expected:
        value = np.load(self.folder / f"{output}.expected.npy")
        return Expected(value, np.load(self.folder / f"{output}.bound.npy"))


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}")


def judged(bundle: Bundle, runs: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """What the runs say of a case: of each output, misses and the share of the bound in the first
    run, and how many runs had its bits."""
    report: dict[str, Any] = {"bits_defined": bundle.about["bits_defined"], "outputs": {}}
    for name, first in runs[0].items():
        expected = bundle.expected(name)
        with np.errstate(all="ignore"):
            error = np.abs(first.astype(np.float64) - expected.value.astype(np.float64))
            share = np.where(error > 0, error / expected.bound, 0.0)
        report["outputs"][name] = {
            "misses": max(expected.misses(run[name]) for run in runs),
            "share_of_bound": float(np.nanmax(share, initial=0)),
            "same_bits": sum(np.array_equal(bits(run[name]), bits(first)) for run in runs),
        }
    report["runs"] = len(runs)
    return report


def passed(report: dict[str, Any]) -> bool:
    outputs = report["outputs"].values()
    same = all(output["same_bits"] == report["runs"] for output in outputs)
    return all(output["misses"] == 0 for output in outputs) and (same or not report["bits_defined"])
