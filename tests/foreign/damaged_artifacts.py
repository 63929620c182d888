"""Artifacts whose manifest is damaged: values changed, left out, repeated or of another type.

Most are sealed again, as somebody who means harm would do, so that what reads the fields meets
them. They are taken through what SECURITY.md says only reads them: `inspect` with its page,
`audit`, the places of instructions, and the lookup of the problem's kind that `verify` begins with.
"""

from __future__ import annotations

import functools
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from mlagen.artifact import Artifact, Manifest, read_artifact
from mlagen.artifact.files import MANIFEST, encode_manifest, file_names, write_artifact
from mlagen.artifact.manifest import sha256
from mlagen.audit.ptx import Given, audit_ptx, read_manifest
from mlagen.codegen import build
from mlagen.errors import MlagenError
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.inspect.page import render_page
from mlagen.inspect.read import inspect_path
from mlagen.inspect.tables import facts, tables
from mlagen.locate import instructions_of
from mlagen.targets.nvidia.ptxas import PtxasResult
from mlagen.verify import kind_of

SECONDS = 2.0  # of an audit of PTX
_SEAL = "manifest_sha256"
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 7, 64, 255, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40,
    (1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 1e308, -0.5, "", "x", "..", "/etc/passwd", "a" * 5000,
    "\x1b[2J", "\u202e", "f32", "bf16", "pointer", "sm_90a", "gfx950", "sm_100a", [], {}, [[]],
    [0], {"x": 1}, [1 << 40, 1, 1],
)  # fmt: skip


@functools.lru_cache(maxsize=1)
def _artifacts() -> tuple[Artifact, ...]:
    """One of machine code and two of PTX, whose cubins nothing here reads."""
    problem, unassembled = MlaDecodeMergeConfig(3), PtxasResult(b"", "", 0, 0, 0, 0, ())
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=unassembled):
        return tuple(build(f"mla_decode_merge_{x}", problem) for x in ("gfx950", "sm90", "sm100"))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of everything in a JSON value."""
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in list(keys):
        yield value, key
        yield from _places(value[key])


def _changed(manifest: dict[str, Any], source: random.Random) -> None:
    """One change of anything but the schema, of a field as often as of all of a source map."""
    tops = [key for key in manifest if key not in ("schema", _SEAL)]
    top = source.choice(tops)
    inside = list(_places(manifest[top])) if source.random() < 0.8 else []
    holder, key = source.choice(inside) if inside else (manifest, top)
    kind = source.random()
    if kind < 0.6:
        alike = [x for x in _VALUES if type(x) is type(holder[key])]
        holder[key] = source.choice(alike if alike and source.random() < 0.8 else _VALUES)
    elif kind < 0.7:
        del holder[key]
    elif kind < 0.85:
        other, at = source.choice(list(_places(manifest)))
        holder[key] = json.loads(json.dumps(other[at]))
    elif isinstance(holder, list):
        holder.insert(source.randrange(len(holder) + 1), holder[key])
    elif isinstance(holder[key], int):
        holder[key] = source.choice((holder[key] * 2, holder[key] + 1, -holder[key], 0))


def damaged(source: random.Random) -> tuple[Artifact, bytes]:
    """An artifact, and the bytes of another manifest."""
    artifact = source.choice(_artifacts())
    manifest = msgspec.json.decode(encode_manifest(artifact.manifest))
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        _changed(manifest, source)
    data = json.dumps(manifest).encode()
    if source.random() < 0.9:
        return artifact, _sealed(manifest, data)
    raw = bytearray(data)
    for _ in range(source.choice((1, 2, 8))):
        raw[source.randrange(len(raw))] = source.choice(b'"{}[],:0-9\x00\xff')
    return artifact, bytes(raw[: source.choice((len(raw), source.randrange(len(raw))))])


def _sealed(manifest: dict[str, Any], data: bytes) -> bytes:
    """With the digest that its content has, where it is a manifest at all."""
    fields = {key: value for key, value in manifest.items() if key != _SEAL}
    try:
        made = msgspec.convert(fields, Manifest)
    except (msgspec.ValidationError, MlagenError):
        return data
    return json.dumps({**fields, _SEAL: sha256(msgspec.json.encode(made))}).encode()


def read(case: tuple[Artifact, bytes]) -> Iterator[str]:
    """Does what reads an artifact's folder, and says what it is about to do."""
    artifact, manifest = case
    with tempfile.TemporaryDirectory(prefix="damaged-") as folder:
        write_artifact(artifact, folder)
        (Path(folder) / MANIFEST).write_bytes(manifest)
        yield "read"
        found = read_artifact(folder)
        yield "inspect"
        report = inspect_path(folder)
        render_page(report)
        facts(report)
        tables(report, everything=True)
        yield "locate"
        instructions_of(found)
        yield "kind"
        kind_of(found)
        yield "audit"
        if file_names(found.manifest.target)[1].endswith(".ptx"):
            given = Given(beside=read_manifest(Path(folder) / MANIFEST))
            audit_ptx(found.text, given, seconds=SECONDS)
