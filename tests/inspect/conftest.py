"""Kernels to look into: ours, built once, and small ones assembled here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlagen.artifact import Artifact, write_artifact
from mlagen.inspect import Inspection, inspect_path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "binary"))


@pytest.fixture(scope="session", autouse=True)
def _tools() -> None:
    pytest.importorskip("ziglang", reason="the assembler wheel (mlagen[amd]) is not installed")
    pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")


TWO_SLOTS: dict[str, object] = {"k_slots": 2, "v_slots": 2, "spare_slots": 0}  # a short loop


def _built(
    folder: Path, schedule: str, problem: object, knobs: dict[str, object] | None = None
) -> Path:
    from mlagen.codegen import build

    return write_artifact(build(schedule, problem, knobs=knobs or {}), folder)


@pytest.fixture(scope="session")
def mha(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our main kernel, as a folder."""
    from mlagen.families.mha_prefill.problem import MhaConfigV2

    folder = tmp_path_factory.mktemp("mha") / "k"
    return _built(folder, "mha_prefill_v2", MhaConfigV2(num_heads=4, num_kv_heads=2), TWO_SLOTS)


@pytest.fixture(scope="session")
def mha_apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with another knob."""
    from mlagen.families.mha_prefill.problem import MhaConfigV2

    folder = tmp_path_factory.mktemp("apart") / "k"
    problem = MhaConfigV2(num_heads=4, num_kv_heads=2)
    return _built(folder, "mha_prefill_v2", problem, {**TWO_SLOTS, "pv_priority": 0})


@pytest.fixture(scope="session")
def hand_placed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A schedule with waits placed by hand."""
    from mlagen.families.mha_prefill.problem import MhaConfigV2

    schedule = HERE.parent / "codegen" / "schedules" / "hand_placed.py"
    folder = tmp_path_factory.mktemp("hand") / "k"
    return _built(folder, str(schedule), MhaConfigV2(num_heads=4, num_kv_heads=2))


@pytest.fixture(scope="session")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sm_90a kernel whose roles hand tiles over, as a folder."""
    from mlagen.app.build import build_artifact
    from mlagen.errors import MissingError

    file = HERE.parents[1] / "examples" / "gemm_bf16.py"
    try:
        artifact = build_artifact(str(file), {}, {}, target="sm_90a")
    except MissingError as error:
        pytest.skip(f"ptxas is needed: {error.message}")
    return write_artifact(artifact, tmp_path_factory.mktemp("hopper") / "k")


@pytest.fixture(scope="session")
def mha_report(mha: Path) -> Inspection:
    return inspect_path(mha)


@pytest.fixture
def inspected(tmp_path: Path) -> Callable[..., Inspection]:
    """Assembles a body and inspects the object."""
    from gfx950_assembler import assemble

    def made(body: str, **frame: object) -> Inspection:
        file = tmp_path / "k.co"
        file.write_bytes(assemble(body, **frame))
        return inspect_path(file)

    return made


@pytest.fixture(scope="session")
def add_folder(add_artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(add_artifact, tmp_path_factory.mktemp("add") / "k")
