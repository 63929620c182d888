"""An artifact as a directory: `kernel.co`, `kernel.s`, `manifest.json`.

On NVIDIA targets code and text are `kernel.cubin` and `kernel.ptx`.

Written all or nothing, read with every hash checked. The manifest's JSON carries its own digest as
its last field, so that an edited manifest is refused like an edited binary.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from mlagen.artifact.manifest import SCHEMA, Artifact, Manifest, sha256
from mlagen.disk import exists, read_file, require_own, write_files
from mlagen.errors import BinaryError, ConfigError, MissingError, OtherVersionError
from mlagen.targets.registry import AMD, NVIDIA, vendor_of
from mlagen.untrusted import decode_json

MANIFEST = "manifest.json"
CODE, TEXT = AMD.code, AMD.text
CUBIN, PTX = NVIDIA.code, NVIDIA.text
_SEAL = "manifest_sha256"
_HEAD = re.compile(rb'\s*\{\s*"schema": ?"mlagen\.manifest/\d+"')


def file_names(target: str) -> tuple[str, str]:
    """The names of code and text of an artifact for `target`."""
    vendor = vendor_of(target)
    return vendor.code, vendor.text


def is_ptx(manifest: Manifest) -> bool:
    """Whether an artifact's text is PTX, which the emulator executes in the place of its code."""
    return file_names(manifest.target)[1] == PTX


def is_part(name: str) -> bool:
    """Whether an artifact has a file of this name."""
    return name in (CODE, TEXT, CUBIN, PTX, MANIFEST)


def is_sealed(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a manifest that some mlagen wrote."""
    return _HEAD.match(head) is not None


class _Stored(Manifest, frozen=True, forbid_unknown_fields=True):
    manifest_sha256: str = ""


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of `manifest.json`: one field a line, one source line a row, sealed by a digest."""
    rows = []
    for name in sorted(manifest.__struct_fields__, key=lambda f: (f != "schema", f == "source")):
        value = getattr(manifest, name)
        if name == "source":
            lines = ",\n".join("  " + _json(row) for row in value)
            rows.append(f' "source": [\n{lines}\n ]' if value else ' "source": []')
        else:
            rows.append(f' "{name}": {_json(value)}')
    rows.append(f' "{_SEAL}": "{_seal(manifest)}"')
    return ("{\n" + ",\n".join(rows) + "\n}\n").encode()


def decode_manifest(data: bytes, *, name: str = MANIFEST) -> Manifest:
    """Reads `manifest.json`; refuses another schema, a wrong field and any alteration."""
    try:
        schema = decode_json(data, dict[str, msgspec.Raw]).get("schema")
        found = None if schema is None else decode_json(schema)
        if found != SCHEMA:
            raise OtherVersionError(
                f"{name}: schema {found!r:.80}; this version reads {SCHEMA!r}",
                hint="build the kernel again with this version of mlagen",
            )
        stored = decode_json(data, _Stored)
        fields = {field: getattr(stored, field) for field in Manifest.__struct_fields__}
        manifest = Manifest(**fields)
        seal = _seal(manifest)
    except (ValueError, RecursionError) as error:
        told = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise BinaryError(
            f"{name}: not a manifest: {told}", hint="build the kernel again"
        ) from None
    if stored.manifest_sha256 != seal:
        raise BinaryError(
            f"{name}: altered since it was written (its digest does not fit its content)",
            hint="build the kernel again; a manifest is not edited by hand",
        )
    return manifest


def write_artifact(artifact: Artifact, directory: Path | str, *, force: bool = False) -> Path:
    """Writes the three files into `directory` and returns it.

    All or none are written (`mlagen.disk`); the manifest gets its name last. An artifact that is
    there is replaced, files of others only by `force`. WriteError.
    """
    target = Path(directory)
    manifest = artifact.manifest
    for what, data, digest in (
        ("code", artifact.code, manifest.code_sha256),
        ("text", artifact.text.encode(), manifest.text_sha256),
    ):
        if sha256(data) != digest:
            raise ConfigError(f"the manifest's {what}_sha256 is not that of the {what}")
    code_name, text_name = file_names(manifest.target)
    # The text comes first: a write that was killed leaves what tells whose the code beside it is.
    payloads = {
        text_name: artifact.text.encode(),
        code_name: artifact.code,
        MANIFEST: encode_manifest(manifest),
    }
    if not force:
        for name in (MANIFEST, text_name):
            require_own(target / name)
        if not any(exists(target / name) for name in (MANIFEST, text_name)):
            require_own(target / code_name)
    write_files(target, payloads)
    return target


def read_artifact(path: Path | str) -> Artifact:
    """Reads an artifact from its directory, or from the path of its code or manifest.

    Raises MissingError when a file is not there, BinaryError when one is truncated or altered.
    """
    given = Path(path)
    if not exists(given):
        raise MissingError(f"no artifact at {given}", hint="mlagen build KERNEL -o DIR makes one")
    directory = given if given.is_dir() else given.parent
    if not given.is_dir() and given.name not in (CODE, CUBIN, MANIFEST):
        raise MissingError(
            f"{given} is no artifact",
            hint=f"name a directory with {MANIFEST} and {CODE} or {CUBIN}",
        )
    manifest = decode_manifest(_read(directory, MANIFEST), name=str(directory / MANIFEST))
    code_name, text_name = file_names(manifest.target)
    code = _read(directory, code_name)
    text = _read(directory, text_name)
    _check(directory / code_name, code, manifest.code_sha256)
    _check(directory / text_name, text, manifest.text_sha256)
    try:
        return Artifact(manifest=manifest, code=code, text=text.decode())
    except UnicodeDecodeError as error:
        raise BinaryError(f"{directory / text_name}: byte {error.start} is no UTF-8") from None


def is_artifact(path: Path | str) -> bool:
    """Whether `path` is a directory holding a manifest, or the code object beside one."""
    given = Path(path)
    directory = given if given.is_dir() else given.parent
    return (directory / MANIFEST).is_file() and (
        given.is_dir() or given.name in (CODE, CUBIN, MANIFEST)
    )


def _read(directory: Path, name: str) -> bytes:
    if not exists(directory / name):
        raise MissingError(
            f"{directory} has no {name}", hint="mlagen build KERNEL -o DIR writes all three files"
        )
    return read_file(directory / name)


def _check(path: Path, data: bytes, digest: str) -> None:
    if sha256(data) != digest:
        raise BinaryError(
            f"{path}: truncated or altered: {len(data)} bytes whose sha256 starts "
            f"{sha256(data)[:12]}, the manifest says {digest[:12]}",
            hint="build the kernel again",
        )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _seal(manifest: Manifest) -> str:
    return sha256(_json(manifest))
