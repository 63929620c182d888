"""Finding the assembler: in order, by what it can do, and with an error that says all it tried."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlagen import env
from mlagen.errors import MissingError
from mlagen.extras import install
from mlagen.targets.gfx950 import clang
from mlagen.targets.gfx950.clang import TOOLS, find_tools

ZIG = Path(importlib.util.find_spec("ziglang").origin).parent / "zig"  # type: ignore[union-attr,arg-type]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No variable set, nothing on PATH, no ROCm: only the wheel is there."""
    for name in (env.CLANG, env.LLD):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(env.ROCM_PATH, str(tmp_path / "no-rocm"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    find_tools.cache_clear()
    yield
    find_tools.cache_clear()


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def put_tools(folder: Path, suffix: str = "") -> tuple[Path, Path]:
    clang = script(folder / f"clang{suffix}", f'exec {ZIG} clang "$@"')
    return clang, script(folder / f"ld.lld{suffix}", f'exec {ZIG} ld.lld "$@"')


def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        clang.importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "ziglang" else find(name, *rest),
    )


def test_the_wheel_is_found_and_named_without_a_path() -> None:
    tools = find_tools("gfx950")
    assert tools.name == "ziglang"
    assert tools.commands[0] == (str(ZIG), "clang")
    assert [tool for tool, _ in tools.versions] == ["clang", "lld", "ziglang"]
    assert all(version[0].isdigit() and "/" not in version for _, version in tools.versions)


def test_nothing_anywhere_names_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    without_wheel(monkeypatch)
    with pytest.raises(MissingError) as caught:
        find_tools("gfx950")
    message = str(caught.value)
    for part in ("no-rocm: no such directory", "PATH: no clang", "ziglang wheel: not installed"):
        assert part in message
    assert install("amd") in message
    assert caught.value.exit_code == 5


def test_rocm_goes_before_path_and_path_before_the_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_tools(tmp_path / "bin", "-22")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_tools("gfx950").name == "path"
    put_tools(tmp_path / "rocm" / "llvm" / "bin")
    monkeypatch.setenv(env.ROCM_PATH, str(tmp_path / "rocm"))
    find_tools.cache_clear()
    assert find_tools("gfx950").name == "rocm"
    assert [t.tools is not None for t in TOOLS.every("gfx950")] == [True, True, True]


def test_named_tools_go_first_and_must_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clang, lld = put_tools(tmp_path / "mine")
    monkeypatch.setenv(env.CLANG, str(clang))
    with pytest.raises(MissingError, match=r"\$MLAGEN_LLD is not set"):
        find_tools("gfx950")
    monkeypatch.setenv(env.LLD, str(tmp_path / "typo"))
    with pytest.raises(MissingError, match=r"\$MLAGEN_LLD = .*typo is no program"):
        find_tools("gfx950")
    monkeypatch.setenv(env.LLD, str(lld))
    assert find_tools("gfx950").name == "environment"
    find_tools.cache_clear()
    script(clang, "echo clang version 99; [ $# = 1 ]")
    with pytest.raises(MissingError, match="clang version 99 does not assemble for gfx950"):
        find_tools("gfx950")


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("Debian clang version 19.1.7", "no clang >= 20"),
        ("Apple clang version 21.0.0", "no clang >= 20"),
        ("Debian clang version 21.1.0", r"has no ld\.lld-21"),
    ],
)
def test_an_unfit_clang_on_path_is_passed_over_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, reason: str
) -> None:
    script(tmp_path / "bin" / "clang", f"echo {version}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    tried = {t.place: t for t in TOOLS.every("gfx950")}
    assert tried["PATH"].tools is None
    assert re.search(reason, tried["PATH"].reason)
    assert find_tools("gfx950").name == "ziglang"


def test_unknown_target_is_refused() -> None:
    with pytest.raises(MissingError, match="for gfx9000"):
        find_tools("gfx9000")
