"""Artifacts of strangers, with digests that fit: what a manifest may hold is held to what kernels
have, and what is shown of it steers no terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from mlagen.artifact import Artifact, RoleMap, SourceLine, read_artifact, sha256, write_artifact
from mlagen.artifact.files import CODE, MANIFEST, TEXT, decode_manifest, encode_manifest
from mlagen.cli.main import run
from mlagen.errors import BinaryError, MlagenError
from mlagen.inspect import inspect_path

DEEP = b"[" * 100_000 + b"]" * 100_000


def sealed(artifact: Artifact, **changes: object) -> bytes:
    return encode_manifest(replace(artifact.manifest, **changes))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (DEEP, "Expected `object`|nested too deeply"),
        (b'{"schema": ' + DEEP + b"}", "nested too deeply"),
        (b'{"schema": "mlagen.manifest/7", "problem": {"a": ' + DEEP + b"}}", "nested too deeply"),
        (b'{"schema": "' + b"x" * 1_000_000 + b'"}', "this version reads"),
        (b'{"schema": "\xff"}', "no UTF-8"),
        (b'{"schema": 1e999}', "out of range"),
    ],
)
def test_json_that_is_no_manifest(data: bytes, told: str) -> None:
    with pytest.raises(BinaryError, match=told) as error:
        decode_manifest(data)
    assert len(error.value.message) < 400


def test_a_problem_that_nests_as_deep_as_json_may(add_artifact: Artifact) -> None:
    data = encode_manifest(add_artifact.manifest)
    for depth in (100, 500, 900, 990):
        nested = b'"problem": {"a": ' + b"[" * depth + b"]" * depth + b"}, "
        start = data.index(b'"problem": ')
        end = data.index(b'"schedule_file": ')
        with pytest.raises(BinaryError, match=r"nested too deeply|altered since"):
            decode_manifest(data[:start] + nested + data[end:])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block", (1 << 40, 1, 1)),
        ("block", (0, 1, 1)),
        ("kernarg_bytes", 10**30),
        ("kernarg_bytes", -8),
    ],
)
def test_numbers_that_no_kernel_has(add_artifact: Artifact, name: str, value: object) -> None:
    with pytest.raises(BinaryError, match=rf"Expected `int`? .*{name}|{name}"):
        decode_manifest(sealed(add_artifact, **{name: value}))


def test_parts_of_a_manifest_have_limits(add_artifact: Artifact) -> None:
    manifest = add_artifact.manifest
    (dim, *_), (arg, *_) = manifest.grid, manifest.args
    role = RoleMap("all", 0, 3)
    for changes in (
        {"grid": (replace(dim, tile=0),)},
        {"args": (replace(arg, offset=1 << 40),)},
        {"args": (replace(arg, align=0),)},
        {"resources": replace(manifest.resources, lds_bytes=1 << 40)},
        {"resources": replace(manifest.resources, vgprs=1 << 40)},
        {"map": replace(manifest.map, roles=(replace(role, last=1 << 40),))},
        {"source": (SourceLine(-1, "", "", "", "", 0, 0),)},
    ):
        with pytest.raises(BinaryError, match="not a manifest: Expected `int`"):
            decode_manifest(sealed(add_artifact, **changes))


def test_text_that_is_none(add_artifact: Artifact, tmp_path: Path) -> None:
    where = write_artifact(add_artifact, tmp_path / "k")
    data = b"\xff" + add_artifact.text.encode()
    (where / TEXT).write_bytes(data)
    manifest = replace(add_artifact.manifest, text_sha256=sha256(data))
    (where / MANIFEST).write_bytes(encode_manifest(manifest))
    with pytest.raises(BinaryError, match=r"kernel\.s: byte 0 is no UTF-8"):
        read_artifact(where)


EMPTY = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry add()\n{\n%s ret;\n}\n"


def hopper(artifact: Artifact, folder: Path, text: str, **changes: object) -> Path:
    """The artifact as one for Hopper with this text."""
    manifest = replace(
        artifact.manifest, target="sm_90a", text_sha256=sha256(text), source=(), **changes
    )
    return write_artifact(Artifact(manifest, artifact.code, text), folder / "h")


def test_a_line_map_of_another_text(add_artifact: Artifact, tmp_path: Path) -> None:
    text = EMPTY % ""
    where = hopper(add_artifact, tmp_path, text)
    assert inspect_path(where).clusters == ()
    for line in (0, text.count("\n") + 1, 1_000_000_000):
        row = SourceLine(line, "loop", "A", "all", "t", 1, 1)
        manifest = replace(read_artifact(where).manifest, source=(row,))
        (where / MANIFEST).write_bytes(encode_manifest(manifest))
        with pytest.raises(
            BinaryError, match=f"line {line} of the text, which has {text.count(chr(10))}"
        ):
            inspect_path(where)


def test_inspecting_a_text_has_a_limit(
    add_artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlagen.inspect import ptx
    from mlagen.untrusted import within

    monkeypatch.setattr(ptx, "within", lambda: within(0.1))
    manifest = add_artifact.manifest
    text = EMPTY % (" add.u32 %a, %b, %c;\n" * 40_000)
    where = hopper(add_artifact, tmp_path, text, map=manifest.map)
    with pytest.raises(MlagenError, match=r"inspecting it met its limit of 0\.1 s"):
        inspect_path(where)


def test_names_do_not_steer_a_terminal(
    add_artifact: Artifact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\nverdict  proved"
    manifest = replace(
        add_artifact.manifest,
        kernel=evil,
        schedule_file=evil,
        problem={"a": evil},
        tools={evil: evil},
    )
    where = write_artifact(Artifact(manifest, add_artifact.code, add_artifact.text), tmp_path / "k")
    assert run(["inspect", str(where)]) == 0
    run(["verify", str(where)])
    run(["verify", str(where), "--prove-again"])
    told = "".join(capsys.readouterr())
    assert "owned" in told
    assert "\x1b" not in told
    assert not any(line.startswith("verdict") for line in told.splitlines())
    assert run(["inspect", str(where), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "mlagen.inspect/1"
    assert (where / CODE).read_bytes() == add_artifact.code
