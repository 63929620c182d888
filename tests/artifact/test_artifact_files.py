"""An artifact's directory: complete or absent, and refused when a byte is different."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlagen.artifact import SCHEMA, Artifact, read_artifact, write_artifact
from mlagen.artifact.files import CODE, MANIFEST, TEXT, decode_manifest, encode_manifest
from mlagen.errors import BinaryError, ConfigError, MissingError, WriteError


def test_roundtrip_by_directory_and_by_code_object(add_artifact: Artifact, tmp_path: Path) -> None:
    where = write_artifact(add_artifact, tmp_path / "a" / "b")
    assert sorted(p.name for p in where.iterdir()) == sorted((CODE, TEXT, MANIFEST))
    assert read_artifact(where) == add_artifact
    assert read_artifact(where / CODE) == add_artifact


def test_manifest_is_json_that_anyone_reads(add_artifact: Artifact) -> None:
    data = encode_manifest(add_artifact.manifest)
    read = json.loads(data)
    assert next(iter(read)) == "schema"
    assert read["schema"] == SCHEMA
    assert read["knobs"] == {"pattern": "even", "priority": 1, "ratio": 0.5}
    assert read["source"][1][:2] == [15, "loop"]
    assert max(len(line) for line in data.decode().splitlines()) < 400
    assert decode_manifest(data) == add_artifact.manifest


def test_same_values_same_bytes(add_artifact: Artifact, tmp_path: Path) -> None:
    first = write_artifact(add_artifact, tmp_path / "first")
    second = write_artifact(add_artifact, tmp_path / "second")
    for name in (CODE, TEXT, MANIFEST):
        assert (first / name).read_bytes() == (second / name).read_bytes()


@pytest.mark.parametrize("name", [CODE, TEXT])
def test_truncated_file_is_refused(add_artifact: Artifact, tmp_path: Path, name: str) -> None:
    where = write_artifact(add_artifact, tmp_path / "k")
    data = (where / name).read_bytes()
    (where / name).write_bytes(data[:-7])
    with pytest.raises(BinaryError, match=rf"{name}: truncated or altered: {len(data) - 7} bytes"):
        read_artifact(where)


def test_one_altered_bit_of_code_is_refused(add_artifact: Artifact, tmp_path: Path) -> None:
    where = write_artifact(add_artifact, tmp_path / "k")
    data = bytearray((where / CODE).read_bytes())
    data[len(data) // 2] ^= 1
    (where / CODE).write_bytes(data)
    with pytest.raises(BinaryError, match="truncated or altered"):
        read_artifact(where)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"priority":1', '"priority":2', "altered since it was written"),
        ('"status":"unproved"', '"status":"proved"', "altered since it was written"),
        (SCHEMA, "mlagen.manifest/9", "schema 'mlagen.manifest/9'; this version reads"),
        (SCHEMA, "mlagen.manifest/2", "schema 'mlagen.manifest/2'; this version reads"),
        ('"schema": ', '"scheme": ', "schema None"),
        ('"kernarg_bytes": 24', '"kernarg_bytes": "24"', "not a manifest"),
        ('"kernarg_bytes": 24', '"kernarg_bites": 24', "not a manifest"),
        ("{", "[", "not a manifest"),
    ],
)
def test_altered_manifest_is_refused(
    make_artifact, tmp_path: Path, old: str, new: str, message: str
) -> None:
    from mlagen.artifact import Proof

    where = write_artifact(make_artifact(proof=Proof("unproved", ("because",))), tmp_path / "k")
    text = (where / MANIFEST).read_text()
    assert old in text
    (where / MANIFEST).write_text(text.replace(old, new, 1))
    with pytest.raises(BinaryError, match=message):
        read_artifact(where)


def test_missing_pieces_are_named(add_artifact: Artifact, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no artifact at"):
        read_artifact(tmp_path / "nowhere")
    where = write_artifact(add_artifact, tmp_path / "k")
    (where / TEXT).unlink()
    with pytest.raises(MissingError, match=f"has no {TEXT}"):
        read_artifact(where)
    (tmp_path / "other.bin").write_bytes(b"x")
    with pytest.raises(MissingError, match=r"other\.bin is no artifact"):
        read_artifact(tmp_path / "other.bin")


def test_manifest_that_does_not_fit_its_code_is_not_written(make_artifact, tmp_path: Path) -> None:
    wrong = make_artifact(code_sha256="0" * 64)
    with pytest.raises(ConfigError, match="code_sha256"):
        write_artifact(wrong, tmp_path / "k")
    assert not (tmp_path / "k").exists()


@pytest.mark.parametrize("succeeding", [0, 1, 2])
def test_failure_midway_leaves_nothing(
    add_artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, succeeding: int
) -> None:
    replace, calls = Path.replace, []

    def failing(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) > succeeding:
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(WriteError, match="No space left on device"):
        write_artifact(add_artifact, tmp_path / "deep" / "k")
    assert list(tmp_path.iterdir()) == []


def test_failed_rewrite_keeps_the_old_artifact(
    add_artifact: Artifact, make_artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = write_artifact(add_artifact, tmp_path / "k")
    newer = make_artifact(knobs={"pattern": "odd"})

    def failing(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(WriteError):
        write_artifact(newer, where)
    assert read_artifact(where) == add_artifact
    assert len(list(where.iterdir())) == 3


def test_a_file_in_the_way_is_an_error_that_names_it(
    add_artifact: Artifact, tmp_path: Path
) -> None:
    (tmp_path / "k").write_text("in the way")
    with pytest.raises(WriteError, match=r"k cannot be written: File exists"):
        write_artifact(add_artifact, tmp_path / "k")
    assert (tmp_path / "k").read_text() == "in the way"
