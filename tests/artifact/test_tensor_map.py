"""Tensor maps in the manifest, the files of NVIDIA artifacts, and manifests of before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mlagen.artifact import (
    Arg,
    Artifact,
    ArtifactStore,
    TensorMapSpec,
    read_artifact,
    sha256,
    write_artifact,
)
from mlagen.artifact.files import decode_manifest, encode_manifest, is_artifact
from mlagen.errors import BinaryError, ConfigError, MissingError

MAP = TensorMapSpec("k", "bf16", 576, 64, 64, 128, pitch="row")
ARGS = (
    Arg("k_map", 0, 128, "tensor_map", "read", tensor_map=MAP),
    Arg("o", 128, 8, "pointer", "write", dtype="fp32", align=16),
    Arg("row", 136, 4, "u32", "value"),
)


@pytest.fixture
def hopper(add_artifact: Artifact) -> Artifact:
    """An artifact for sm_90a; its code is never read here."""
    manifest = msgspec.structs.replace(
        add_artifact.manifest, target="sm_90a", args=ARGS, code_sha256=sha256(b"cubin")
    )
    return Artifact(manifest, b"cubin", add_artifact.text)


def test_it_is_written_and_read(hopper: Artifact, tmp_path: Path) -> None:
    where = write_artifact(hopper, tmp_path / "k")
    assert sorted(path.name for path in where.iterdir()) == [
        "kernel.cubin",
        "kernel.ptx",
        "manifest.json",
    ]
    for path in (where, where / "kernel.cubin", where / "manifest.json"):
        assert is_artifact(path)
        assert read_artifact(path) == hopper
    assert not is_artifact(where / "kernel.ptx")
    with pytest.raises(MissingError, match="no artifact"):
        read_artifact(where / "kernel.ptx")
    (where / "kernel.ptx").write_text("other")
    with pytest.raises(BinaryError, match=r"kernel\.ptx: truncated or altered"):
        read_artifact(where)


def test_the_store_keeps_it(hopper: Artifact, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.put(hopper)
    assert store.get(hopper.key) == hopper


def test_a_manifest_without_the_new_fields_keeps_its_bytes(add_artifact: Artifact) -> None:
    """What was sealed before tensor maps were known is still read: nothing was added to it."""
    data = encode_manifest(add_artifact.manifest)
    for word in (b"tensor_map", b"dtype", b"align"):
        assert word not in data
    x = b'{"name":"x","offset":0,"size":8,"kind":"pointer","access":"read"}'
    assert x in data
    assert decode_manifest(data) == add_artifact.manifest


def test_which_tensor_an_argument_needs() -> None:
    assert [arg.tensor for arg in ARGS] == ["k", "o", ""]


def test_columns_and_pitch_may_be_run_time_sizes() -> None:
    assert MAP.columns({"row": 640}) == (576, 640)
    assert TensorMapSpec("a", "bf16", "depth", 64, 8).columns({"depth": 72}) == (72, 72)
    with pytest.raises(ConfigError, match="the tensor map of k needs the size 'row'"):
        MAP.columns({"rows": 640})
    with pytest.raises(ConfigError, match="576 columns in rows 512 elements apart"):
        MAP.columns({"row": 512})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "bf15"}, "unknown dtype 'bf15'"),
        ({"box_rows": 257}, "box_rows=257; a box has 1 to 256"),
        ({"box_cols": 0}, "box_cols=0"),
        ({"box_cols": 12}, "box rows of 24 bytes; they are multiples of 16"),
        ({"box_cols": 72}, "box rows of 144 bytes; .* at most 128"),
        ({"swizzle_bytes": 32}, "box rows of 128 bytes; .* at most 32"),
    ],
)
def test_boxes_that_the_hardware_has_not(changes: dict[str, Any], message: str) -> None:
    fields = {name: getattr(MAP, name) for name in MAP.__struct_fields__}
    with pytest.raises(ConfigError, match=message):
        TensorMapSpec(**{**fields, **changes})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("k", 0, 128, "tensor_map", "read"), "kind 'tensor_map' and its spec do not agree"),
        (("k", 0, 8, "pointer", "read", "", 1, MAP), "kind 'pointer' and its spec"),
        (("k", 32, 128, "tensor_map", "read", "", 1, MAP), "multiple of 64, not 128 at 32"),
        (("k", 0, 64, "tensor_map", "read", "", 1, MAP), "not 64 at 0"),
        (("k", 0, 8, "pointer", "read", "float"), "unknown dtype 'float'"),
    ],
)
def test_arguments_that_do_not_agree(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Arg(*arguments)
