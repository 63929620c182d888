"""A target that is like another is a folder of its own and a row: here one like sm_90a."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path
from types import ModuleType

import pytest

from mlagen.artifact import Artifact, SourceLine
from mlagen.codegen import build
from mlagen.codegen.target import target_of
from mlagen.codegen.tools import Tools
from mlagen.dsl import schedule
from mlagen.errors import TemplateError
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.schedules.mla_decode_merge_nvidia import mla_decode_merge_sm90
from mlagen.targets import registry
from mlagen.targets.nvidia.ptxas import PtxasResult
from mlagen.targets.nvidia.target import Pipelined
from mlagen.targets.sm_90a.limits import SM_90A

UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())
ADD = "split_merge/add.ptx.j2"
LIMITS = replace(SM_90A, name="sm_95x", smem_bytes=200 * 1024)


@pytest.fixture
def sm_95x(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row and what its folder would hold: its limits, and what it takes from sm_90a."""
    limits, target = ModuleType("sm_95x.limits"), ModuleType("sm_95x.target")
    limits.SM_95X = LIMITS  # type: ignore[attr-defined]
    target.TARGET = Pipelined(LIMITS, ("sm_95x", "sm_90a"))  # type: ignore[attr-defined]
    for module in (ModuleType("sm_95x"), limits, target):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    row = registry.TargetRow("sm_95x", registry.NVIDIA)
    monkeypatch.setitem(registry.TARGETS, "sm_95x", row)
    generator = "mlagen.targets.nvidia.codegen.build"
    monkeypatch.setattr(f"{generator}.find_ptxas", lambda target: Tools((), "none", ()))
    monkeypatch.setattr(f"{generator}.assemble_ptx", lambda text, **named: UNASSEMBLED)


def made(target: str, templates: Path | None = None) -> Artifact:
    """The merge kernel for that target, not assembled."""
    function = schedule(problem=MlaDecodeMergeConfig, target=target)(mla_decode_merge_sm90.function)
    return build(function, MlaDecodeMergeConfig(64), templates_dir=templates)


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True)
    path.write_text(text)


@pytest.mark.usefixtures("sm_95x")
def test_it_has_its_own_limits_and_takes_the_templates_of_the_other() -> None:
    text = made("sm_95x").text
    assert ".target sm_95x" in text and f"of {200 * 1024} bytes" in text
    assert instructions(text) == instructions(made("sm_90a").text)
    assert registry.limits_of("sm_95x") == target_of("sm_95x").limits == LIMITS


@pytest.mark.usefixtures("sm_95x")
def test_a_template_of_its_own_goes_first_and_the_others_stay(tmp_path: Path) -> None:
    shipped = resources.files("mlagen.templates") / "sm_90a" / ADD
    write(tmp_path, f"sm_95x/{ADD}", "{# of sm_95x: a line more #}\n" + shipped.read_text())
    usual, found = (
        made("sm_90a", tmp_path).manifest.source,
        made("sm_95x", tmp_path).manifest.source,
    )
    assert {line.template for line in usual} == {line.template for line in found}
    assert lines_of_add(usual) and [n + 1 for n in lines_of_add(usual)] == lines_of_add(found)


@pytest.mark.usefixtures("sm_95x")
def test_a_template_of_the_extended_target_is_taken_from_a_users_folder(tmp_path: Path) -> None:
    """Nearest target first: what is written for sm_90a does not go before what sm_95x has."""
    write(tmp_path, f"sm_90a/{ADD}", "{{ nowhere }}\n")
    with pytest.raises(TemplateError, match=r"sm_90a/split_merge/add\.ptx\.j2:1: 'nowhere'"):
        made("sm_95x", tmp_path)
    shipped = resources.files("mlagen.templates") / "sm_90a" / ADD
    write(tmp_path, f"sm_95x/{ADD}", shipped.read_text())
    assert lines_of_add(made("sm_95x", tmp_path).manifest.source)


def lines_of_add(source: tuple[SourceLine, ...]) -> list[int]:
    return [line.template_line for line in source if line.template == ADD]


def instructions(text: str) -> list[str]:
    """The lines without comments and the name of the target."""
    lines = (line.partition("//")[0].strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(".target")]
