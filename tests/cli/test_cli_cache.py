"""`mlagen cache`: what is kept, and that only that is removed."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mlagen.app import kept as module
from mlagen.codegen import scratch as scratch_module
from mlagen.codegen.scratch import scratch
from mlagen.tune.database import open_database

KERNEL = ("mla_prefill_reduce", "--set", "num_heads=4")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiled engine that is not the one that other tests use, beside a file that is none; and
    a folder for temporary files that no other process works in."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    scratch_module._tidied.cache_clear()
    folder = tmp_path / "compiled"
    folder.mkdir()
    for name in ("engine.a.nbc", "engine.a.nbi", "engine.cpython-311.pyc"):
        (folder / name).write_bytes(bytes(1500))
    monkeypatch.setattr(module, "_compiled", lambda: {"engine": (folder, "engine.*.nb[ci]")})
    return folder


def test_what_is_kept(mlagen: Callable[..., Any], engine: Path, tmp_path: Path) -> None:
    shown = json.loads(mlagen("cache", "--json").out)["kept"]
    assert [(each["name"], each["count"], each["bytes"]) for each in shown] == [
        ("kernels", 0, 0),
        ("engine", 2, 3000),
        ("scratch", 0, 0),
        ("tuning", 0, 0),
    ]
    assert not (tmp_path / "cache").exists()
    built = json.loads(mlagen("build", *KERNEL, "--json").out)
    kernels = json.loads(mlagen("cache", "--json").out)["kept"][0]
    size = sum(path.stat().st_size for path in Path(built["directory"]).iterdir())
    assert (kernels["count"], kernels["bytes"]) == (1, size)
    (listed,) = json.loads(mlagen("list", "--built", "--json").out)["artifacts"]
    assert listed["bytes"] == size
    assert listed["schedule"].endswith("mla_prefill_reduce.py")
    assert listed["built"].startswith("20") and listed["built"].endswith("Z")
    table = mlagen("cache").out
    assert "3.0 kB" in table and str(engine) in table
    text = mlagen("list", "--built").out
    assert "waves=1" in text and "num_heads=4" in text and built["directory"] in text


def test_what_cannot_be_read_does_not_stop_the_list(
    mlagen: Callable[..., Any], tmp_path: Path
) -> None:
    built = Path(json.loads(mlagen("build", *KERNEL, "--json").out)["directory"])
    text = (built / "manifest.json").read_text()
    texts = {"other": text.replace("mlagen.manifest/7", "mlagen.manifest/4"), "damaged": text[:80]}
    for name, changed in texts.items():
        folder = built.parents[1] / "aa" / name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(changed)
    done = mlagen("list", "--built")
    assert done.code == 0 and str(built) in done.out
    assert "damaged: " in done.out and "not a manifest" in done.out
    assert "\n1 artifact; mlagen cache has their size\n" in done.out
    assert done.out.endswith("1 of another version: mlagen cache --clean\n")
    told = json.loads(mlagen("list", "--built", "--json").out)
    assert [len(told[name]) for name in ("artifacts", "other_versions", "damaged")] == [1, 1, 1]


def test_cleaning(
    mlagen: Callable[..., Any], engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLAGEN_TUNING", raising=False)
    mlagen("build", *KERNEL)
    results = tmp_path / "cache" / "tuning.sqlite"
    open_database(results).close()
    done = json.loads(mlagen("cache", "--clean", "--json").out)["removed"]
    counts = [(each["name"], each["count"]) for each in done]
    assert counts == [("kernels", 1), ("engine", 2), ("scratch", 0)]
    assert [path.name for path in engine.iterdir()] == ["engine.cpython-311.pyc"]
    assert list((tmp_path / "cache" / "artifacts").iterdir()) == []
    assert results.exists()
    done = json.loads(mlagen("cache", "tuning", "--clean", "--json").out)["removed"]
    assert [(each["name"], each["count"]) for each in done] == [("tuning", 1)]
    assert not results.exists()
    assert mlagen("cache", "--clean").code == 0  # nothing is left, which is no error


def snapshot(folder: Path) -> dict[str, bytes | str]:
    """All below a folder: contents of files, and where links lead."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink()
        else path.read_bytes() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }  # fmt: skip


KEY = "ab" + 62 * "0"
ARTIFACT = b'{\n "schema": "mlagen.manifest/5",\n "x": 1\n}\n'


def _foreign(kind: str, store: Path, victim: Path) -> None:
    """Something in or around the store that mlagen did not make. `victim` lies elsewhere."""
    keyed = store / "artifacts" / "ab" / KEY
    match kind:
        case "folders of two letters":
            (store / "artifacts" / "v1" / "models").mkdir(parents=True)
            (store / "artifacts" / "v1" / "models" / "w.bin").write_text("weights")
            (store / "artifacts" / "ab" / "us").mkdir(parents=True)
            (store / "artifacts" / "ab" / "us" / "report.pdf").write_text("report")
            (store / "artifacts" / "ab" / "manifest.json").write_bytes(ARTIFACT)
        case "a key without a manifest":
            keyed.mkdir(parents=True)
            (keyed / "kernel.co").write_text("somebody's")
        case "a key with a manifest of others":
            keyed.mkdir(parents=True)
            (keyed / "manifest.json").write_text('{"schema": "web.manifest/5"}')
        case "a key of another folder":
            (store / "artifacts" / "cd" / KEY).mkdir(parents=True)
            (store / "artifacts" / "cd" / KEY / "manifest.json").write_bytes(ARTIFACT)
        case "an upper-case key":
            (store / "artifacts" / "ab" / KEY.upper()).mkdir(parents=True)
            (store / "artifacts" / "ab" / KEY.upper() / "manifest.json").write_bytes(ARTIFACT)
        case "a link to letters":
            (store / "artifacts").mkdir(parents=True)
            (store / "artifacts" / "ab").symlink_to(victim)
        case "a link to a key":
            (store / "artifacts" / "ab").mkdir(parents=True)
            keyed.symlink_to(victim / KEY)
        case "a link to the artifacts":
            store.mkdir()
            (store / "artifacts").symlink_to(victim.parent)
        case "a link to the store":
            (victim.parent / "artifacts").mkdir()
            (victim.parent / "artifacts" / "ab").symlink_to(victim)
            store.symlink_to(victim.parent)
        case "a manifest that is a link":
            keyed.mkdir(parents=True)
            (keyed / "manifest.json").symlink_to(victim / KEY / "manifest.json")
        case "artifacts is a file":
            store.mkdir()
            (store / "artifacts").write_text("mine")


@pytest.mark.parametrize(
    "kind",
    ["folders of two letters", "a key without a manifest", "a key with a manifest of others",
     "a key of another folder", "an upper-case key", "a link to letters", "a link to a key",
     "a link to the artifacts", "a link to the store", "a manifest that is a link",
     "artifacts is a file"],
)  # fmt: skip
def test_what_others_made_stays(
    mlagen: Callable[..., Any], engine: Path, tmp_path: Path, kind: str
) -> None:
    # An artifact of ours that a link would lead to.
    victim = tmp_path / "else" / "ab"
    (victim / KEY).mkdir(parents=True)
    (victim / KEY / "manifest.json").write_bytes(ARTIFACT)
    _foreign(kind, tmp_path / "cache", victim)
    before = snapshot(tmp_path)
    for _ in range(2):
        shown = mlagen("cache")
        done = mlagen("cache", "--clean", "kernels")
        assert (shown.code, done.code) == (0, 0)
        assert done.out.count("\nleft  ") == shown.out.count("\nleft  ") >= 1, done.out
        assert json.loads(mlagen("cache", "--json").out)["kept"][0]["count"] == 0
    assert snapshot(tmp_path) == before


def test_what_lies_in_an_artifact_besides_stays(
    mlagen: Callable[..., Any], engine: Path, tmp_path: Path
) -> None:
    built = Path(json.loads(mlagen("build", *KERNEL, "--json").out)["directory"])
    (tmp_path / "notes.txt").write_text("mine")
    (built / "notes.txt").write_text("mine")
    (built / "link").symlink_to(tmp_path / "notes.txt")
    (built / "kernel.ptx").symlink_to(tmp_path / "notes.txt")
    (built / ".mlagen.0123456789ab").write_text("of a build that was killed")
    done = mlagen("cache", "--clean", "kernels")
    assert sorted(path.name for path in built.iterdir()) == ["kernel.ptx", "link", "notes.txt"]
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert f"left  {built}: kernel.ptx, link, notes.txt" in done.out


@pytest.mark.parametrize("what", ["another database", "no database", "a folder", "a link"])
def test_tuning_results_of_others_stay(
    mlagen: Callable[..., Any],
    engine: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
) -> None:
    results = tmp_path / "results" / "mine"
    results.parent.mkdir()
    match what:
        case "another database":
            with closing(sqlite3.connect(results)) as database:
                database.execute("CREATE TABLE mine (a)")
        case "no database":
            results.write_bytes(bytes(10))
        case "a folder":
            results.mkdir()
            (results / "thesis").write_text("mine")
        case "a link":
            open_database(results.with_name("store")).close()
            results.symlink_to("store")
    monkeypatch.setenv("MLAGEN_TUNING", str(results))
    before = snapshot(results.parent)
    done = mlagen("cache", "--clean", "tuning")
    assert done.code == 0 and f"left  {results}: " in done.out
    assert snapshot(results.parent) == before


def test_folders_of_killed_builds(mlagen: Callable[..., Any], engine: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    names = ("mlagen.scratch.aaaaaaaa", "mlagen.scratch.bbbbbbbb", "mlagen.scratch.cccccccc",
             "mlagen-projects", "mlagen.scratch.mine")  # fmt: skip
    for name in names:
        (temporary / name).mkdir(mode=0o700)
        (temporary / name / "kernel.s").write_text("text")
    (temporary / names[2] / "inner").mkdir()
    (temporary / "mlagen.scratch.dddddddd").symlink_to(temporary / names[3])
    for name in names:
        os.utime(temporary / name, (0, 0))
    with scratch() as living:
        assert not (temporary / names[0]).exists(), "a build tidies up after those before"
        (temporary / names[0]).mkdir(mode=0o700)
        os.utime(temporary / names[0], (0, 0))
        os.utime(living, (0, 0))  # its lock keeps it
        shown = json.loads(mlagen("cache", "--json").out)["kept"][2]
        assert (shown["name"], shown["count"]) == ("scratch", 1)
        done = mlagen("cache", "--clean")
        assert done.code == 0 and f"left  {temporary / names[2]}: inner" in done.out
        left = {path.name for path in temporary.iterdir()}
        assert left == {*names[2:], "mlagen.scratch.dddddddd", living.name}
    assert not living.exists()


def test_refusals(mlagen: Callable[..., Any], engine: Path) -> None:
    done = mlagen("cache", "kernels")
    assert done.code == 2 and "--clean" in done.err
    done = mlagen("cache", "--clean", "all")
    assert done.code == 2 and "names: kernels, engine, scratch, tuning" in done.err
