"""`mlagen cache`: what is kept, and that only that is removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlagen import kept as module

KERNEL = ("mla_prefill_reduce", "--set", "num_heads=4")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiled engine that is not the one that other tests use, beside a file that is none."""
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
    texts = {"other": text.replace("mlagen.manifest/6", "mlagen.manifest/4"), "damaged": text[:80]}
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
    for path in (results, results.with_name("tuning.sqlite-wal")):
        path.write_bytes(bytes(10))
    done = json.loads(mlagen("cache", "--clean", "--json").out)["removed"]
    assert [(each["name"], each["count"]) for each in done] == [("kernels", 1), ("engine", 2)]
    assert [path.name for path in engine.iterdir()] == ["engine.cpython-311.pyc"]
    assert list((tmp_path / "cache" / "artifacts").iterdir()) == []
    assert results.exists()
    done = json.loads(mlagen("cache", "tuning", "--clean", "--json").out)["removed"]
    assert [(each["name"], each["count"], each["bytes"]) for each in done] == [("tuning", 2, 20)]
    assert not results.exists()
    assert mlagen("cache", "--clean").code == 0  # nothing is left, which is no error


def test_refusals(mlagen: Callable[..., Any], engine: Path) -> None:
    done = mlagen("cache", "kernels")
    assert done.code == 2 and "--clean" in done.err
    done = mlagen("cache", "--clean", "all")
    assert done.code == 2 and "names: kernels, engine, tuning" in done.err
