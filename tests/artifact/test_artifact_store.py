"""The store: addressed by text, tools and flags; never by problem or knobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlagen.artifact import Artifact, ArtifactStore, artifact_key
from mlagen.errors import BinaryError, ConfigError, MissingError


def test_put_then_get(add_artifact: Artifact, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    where = store.put(add_artifact)
    assert where == store.path(add_artifact.key)
    assert store.get(add_artifact.key) == add_artifact
    assert store.put(add_artifact) == where
    assert [(key, m.kernel) for key, m in store] == [(add_artifact.key, "add")]


def test_the_key_is_text_tools_and_flags(add_artifact: Artifact, make_artifact) -> None:
    same = make_artifact(problem={"lanes": 32}, knobs={})
    assert same.key == add_artifact.key
    manifest = add_artifact.manifest
    keys = {
        add_artifact.key,
        artifact_key(add_artifact.text + "\n", manifest.tools, manifest.flags),
        artifact_key(add_artifact.text, {**manifest.tools, "clang": "other"}, manifest.flags),
        artifact_key(add_artifact.text, manifest.tools, (*manifest.flags, "-O")),
    }
    assert len(keys) == 4


def test_an_empty_store_lists_nothing(tmp_path: Path) -> None:
    assert list(ArtifactStore(tmp_path / "never made")) == []


def test_unknown_key_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="has no artifact aaaa"):
        ArtifactStore(tmp_path).get("a" * 64)


def test_a_misplaced_artifact_is_refused(add_artifact: Artifact, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    other = store.path("b" * 64)
    other.parent.mkdir()
    store.put(add_artifact).rename(other)
    with pytest.raises(BinaryError, match="not its own"):
        store.get("b" * 64)


def test_grid_rule(add_artifact: Artifact) -> None:
    manifest = add_artifact.manifest
    assert [manifest.grid_for({"length": n}) for n in (1, 64, 65)] == [
        (1, 1, 1),
        (1, 1, 1),
        (2, 1, 1),
    ]
    with pytest.raises(ConfigError, match="the grid needs the size 'length'"):
        manifest.grid_for({"batch": 1})
    with pytest.raises(ConfigError, match="length = 0"):
        manifest.grid_for({"length": 0})
