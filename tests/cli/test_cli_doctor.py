"""`mlagen doctor` on an installation for one vendor: what this person can do comes first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mlagen.app import doctor
from mlagen.app.doctor import Check
from mlagen.extras import install
from mlagen.targets.gfx950 import clang
from mlagen.targets.nvidia import ptxas


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """mlagen[nvidia,cuda] beside an H200: no assembler for gfx950, no emulator."""
    packages = doctor._packages()
    absent = {"emulator", "hip"}
    packages = {
        extra: tuple(dataclasses.replace(c, found=extra not in absent) for c in checks)
        for extra, checks in packages.items()
    }
    has = {"gpus": True, "models": ["NVIDIA H200"]}
    tool = ptxas.Candidate("the wheel", "wheel", (("ptxas",),))
    found = ptxas.Tools((("ptxas",),), "wheel", (("ptxas", "13.0.88"),))
    monkeypatch.setattr(doctor, "_packages", lambda: packages)
    monkeypatch.setattr(doctor, "_nvidia_models", lambda: has["models"])
    names = ("amdgpu driver", "AMD GPUs", "HIP runtime", "NVIDIA driver", "CUDA driver library")
    monkeypatch.setattr(
        doctor, "_gpus", lambda: [Check(n, has["gpus"] and n[0] in "NC") for n in names]
    )
    amd = dataclasses.replace(clang.TOOLS, candidates=lambda: ())
    nvidia = dataclasses.replace(
        ptxas.TOOLS, candidates=lambda: (tool,), probe=lambda candidate, target: found
    )
    monkeypatch.setattr(
        doctor,
        "target_of",
        lambda target: SimpleNamespace(tools=amd if target == "gfx950" else nvidia),
    )
    return has


def rows(out: str) -> dict[str, str]:
    return {line.split()[0]: line for line in out.splitlines() if line[:4] in ("  gf", "  sm")}


def test_a_hopper_installation(mlagen: Callable[..., Any], hopper: dict[str, Any]) -> None:
    done = mlagen("doctor")
    assert done.code == 0, done.out
    shown = rows(done.out)
    assert shown["sm_90a"].split()[1] == "yes" and shown["sm_90a"].endswith("yes")
    assert install("emulator") in shown["sm_90a"]
    assert shown["sm_100a"].endswith("no B200 or GB200: NVIDIA H200")
    assert install("amd") in shown["gfx950"]
    said = done.out.splitlines()
    good = next(n for n, line in enumerate(said) if line.startswith("mlagen build works here for"))
    assert "sm_90a, sm_100a" in said[good] and len(said) < 20
    assert all("gfx950" in line for line in said[:good] if "ziglang" in line)
    hopper["gpus"] = False  # what can be built runs nowhere
    assert mlagen("doctor").code == 5
