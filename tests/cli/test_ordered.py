"""A kernel that declares no plain loop is ordered, not proved: everywhere in the same words."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from mlagen.artifact import Artifact, Proof, read_artifact, write_artifact
from mlagen.artifact.manifest import NOT_COMPARED
from mlagen.launch import EmulatedLauncher

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TARGETS = ("gfx950", "sm_90a", "sm_100a")


@pytest.fixture
def undeclared(tmp_path: Path) -> Path:
    """The example's file with its plain orders taken back, beside what it imports."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("gemm", "templates"):
        (folder / name).symlink_to(EXAMPLES / name)
    text = (EXAMPLES / "gemm_bf16.py").read_text()
    text = text.replace("    with prologue(", "    s.plain = None\n    with prologue(")
    (folder / "gemm_bf16.py").write_text(text)
    return folder / "gemm_bf16.py"


@pytest.mark.parametrize("target", TARGETS)
def test_a_build_says_which(
    mlagen: Callable[..., Any], undeclared: Path, tmp_path: Path, target: str
) -> None:
    where = tmp_path / "ordered"
    done = mlagen("build", undeclared, "--target", target, "-o", where)
    words = next(line for line in done.out.splitlines() if line.startswith("proof"))
    assert "ordered: " in words and "proved" not in words and NOT_COMPARED in words
    manifest = read_artifact(where).manifest
    assert manifest.proof.status == "ordered" and not manifest.proved
    assert NOT_COMPARED in mlagen("inspect", undeclared, "--target", target).out
    if target == "gfx950":
        assert NOT_COMPARED in mlagen("inspect", where).out


def test_verify_judges_it_and_says_so(mlagen: Callable[..., Any], undeclared: Path) -> None:
    shape = [word for name in ("m", "n", "k") for word in ("--shape", f"{name}=64")]
    done = mlagen("verify", undeclared, "--target", "gfx950", *shape)
    assert done.code == 0 and f"ordered; {NOT_COMPARED}" in done.out
    assert "verdict    passed" in done.out
    told = json.loads(mlagen("verify", undeclared, "--target", "gfx950", *shape, "--json").out)
    assert (told["passed"], told["proved"]) == (True, False)
    assert told["proof"]["status"] == "ordered"


def test_the_store_lists_it(mlagen: Callable[..., Any], undeclared: Path) -> None:
    mlagen("build", undeclared, "--target", "gfx950")
    assert "gemm_bf16 for gfx950, ordered\n" in mlagen("list", "--built").out


def test_proving_again_tells_a_boast(
    mlagen: Callable[..., Any], undeclared: Path, tmp_path: Path
) -> None:
    again = ("--prove-again", "--problem", undeclared)
    honest = tmp_path / "honest"
    mlagen("build", undeclared, "--target", "gfx950", "-o", honest)
    done = mlagen("verify", honest, *again)
    assert done.code == 0 and done.out.endswith("verdict   ordered\n")
    told = json.loads(mlagen("verify", honest, *again, "--json").out)
    assert (told["proved"], told["same"], told["status"]) == (False, True, "ordered")
    artifact = read_artifact(honest)
    proof = replace(artifact.manifest.proof, status="proved")
    boast = replace(artifact.manifest, proof=proof)
    where = write_artifact(Artifact(boast, artifact.code, artifact.text), tmp_path / "boast")
    done = mlagen("verify", where, *again)
    assert done.code == 4 and "manifest  differs: proof\n" in done.out


def test_it_is_launched_and_told_once(
    make_artifact: Callable[..., Artifact], caplog: pytest.LogCaptureFixture
) -> None:
    kernel = make_artifact(proof=Proof("ordered", (), 4, 9), text_sha256="0" * 64)
    tensors = {name: np.zeros(64, np.uint32) for name in ("x", "o")}
    with caplog.at_level(logging.WARNING, logger="mlagen.launch"):
        for _ in range(2):
            EmulatedLauncher().launch(
                kernel, tensors=tensors, scalars={"add": 7}, sizes={"length": 64}
            )
    assert [x.getMessage() for x in caplog.records] == [f"add is ordered; {NOT_COMPARED}"]
