"""The attacks of a hostile day on the command line and on Python, each with the end that it must
have: 0 tracebacks, hangs, lost data, unbounded memory.

A sample of them runs with the others, all with

    MLAGEN_ACCEPTANCE=1 pytest tests/hostile/test_attacks.py tests/hostile/test_attacks_machine.py tests/hostile/test_attacks_python.py
"""  # noqa: E501

from __future__ import annotations

import re
import shutil
import stat
from pathlib import Path

import attacks_files
import attacks_schedules
import pytest
from attack import Attack
from sandbox import Sandbox
from scale_kernel import write_case
from small_kernel import make

from mlagen.app.build import build_artifact
from mlagen.artifact import write_artifact

ROOT = Path(__file__).resolve().parents[2]
ATTACKS: list[Attack] = [*attacks_files.ATTACKS, *attacks_schedules.ATTACKS]
POINTER = '[buffers.p]\nbytes = 256\n[[arguments]]\nname = "p"\nbuffer = "p"\n'


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What attacks begin with: a code object and PTX with launch files, artifacts of both kinds, a
    schedule of one's own."""
    from mlagen.emulator.ptx.starting import STARTER

    STARTER.start()  # compiled here, without a limit of time
    folder = tmp_path_factory.mktemp("prepared")
    write_case(folder)
    (folder / "k.ptx").write_text(attacks_files.PTX)
    (folder / "p.toml").write_text(attacks_files.LAUNCH + POINTER)
    write_artifact(make(), folder / "art")
    write_artifact(build_artifact("mla_decode_merge_sm90", {"num_heads": 16}, {}), folder / "pt")
    (folder / "folder").mkdir()
    page = (ROOT / "docs" / "first_kernel.md").read_text()
    for name, body in re.findall(r"[Ii]n `([\w./]+)`:\n\n```\w+\n(.*?)```", page, re.S):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(body)
    return folder


def left(folder: Path) -> dict[str, bytes]:
    """Small regular files of a folder."""
    paths = sorted(folder.rglob("*"))
    fit = [p for p in paths if stat.S_ISREG(p.lstat().st_mode) and p.stat().st_size < 1 << 20]
    return {str(path.relative_to(folder)): path.read_bytes() for path in fit}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack(sandbox: Sandbox, prepared: Path, tmp_path: Path, attack: Attack) -> None:
    here = tmp_path / "here"
    shutil.copytree(prepared, here)
    attack.prepare(here)
    before = left(here)
    ran = sandbox.run(*attack.command, cwd=here)
    attack.judge(ran)
    after = left(here)
    kept = before if ran.code in (2, 5) else {name: before[name] for name in attack.kept}
    assert {name: after.get(name) for name in kept} == kept
    if ran.code in (2, 5):
        assert after.keys() == before.keys(), "something is left of what was refused"
    assert not [path for path in here.iterdir() if path.name.startswith(".mlagen.")]
