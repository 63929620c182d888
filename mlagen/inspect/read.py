"""From a path to an inspection: an artifact's folder or files, or any gfx950 code object."""

from __future__ import annotations

from pathlib import Path

from mlagen.artifact import Artifact, read_artifact
from mlagen.artifact.files import CUBIN, MANIFEST, PTX, TEXT, is_artifact
from mlagen.binary import load_code_object, read_code_object
from mlagen.disk import exists
from mlagen.errors import BinaryError, ConfigError, MissingError
from mlagen.inspect.gfx950 import inspect_gfx950
from mlagen.inspect.model import Inspection
from mlagen.inspect.ptx import inspect_ptx
from mlagen.targets.registry import NVIDIA, vendor_of


def inspect_path(path: Path | str, kernel: str | None = None) -> Inspection:
    """Inspect what lies at `path`. `kernel` names one of several in a code object.

    Raises MissingError for what is not there, BinaryError for what cannot be read, ConfigError for
    a kernel name that does not belong.
    """
    given = Path(path)
    if not exists(given):
        raise MissingError(
            f"nothing at {given}", hint="name an artifact's folder or a linked gfx950 code object"
        )
    text = given.name in (TEXT, PTX) and (given.parent / MANIFEST).is_file()
    if text or is_artifact(given):
        artifact = read_artifact(given.parent if text else given)
        return _of_artifact(given, artifact, kernel)
    if given.is_dir():
        raise MissingError(
            f"{given} has no {MANIFEST}, so it is no artifact",
            hint="name a folder that mlagen build wrote, or a code object inside",
        )
    if given.suffix in (".cubin", ".ptx"):
        raise BinaryError(
            f"{given}: a {given.suffix} alone tells no roles or clusters",
            hint=f"keep {CUBIN}, {PTX} and {MANIFEST} of mlagen build in one folder and name that",
        )
    code = read_code_object(given)
    try:
        return inspect_gfx950(given, code, code.kernel(kernel), None)
    except BinaryError as error:
        raise type(error)(f"{given}: {error.message}", hint=error.hint) from None


def _of_artifact(path: Path, artifact: Artifact, kernel: str | None) -> Inspection:
    manifest = artifact.manifest
    if kernel not in (None, manifest.symbol):
        raise ConfigError(f"{path} has no kernel {kernel}", hint=f"it has: {manifest.symbol}")
    if vendor_of(manifest.target) is NVIDIA:
        return inspect_ptx(path, artifact)
    code = load_code_object(artifact.code)
    return inspect_gfx950(path, code, code.kernel(manifest.symbol), artifact)
