"""What a build produces: the code object, its text, and a manifest that says how to launch it.

An artifact is a value. It is kept as a directory of three files that need nothing of mlagen to be
read (`kernel.co`, `kernel.s`, `manifest.json`; on NVIDIA targets `kernel.cubin`, `kernel.ptx`), and
in a store addressed by content.
"""

from mlagen.artifact.files import file_names, is_ptx, read_artifact, write_artifact
from mlagen.artifact.manifest import (
    DTYPE_BYTES,
    SCHEMA,
    Arg,
    Artifact,
    GridDim,
    Manifest,
    Proof,
    Resources,
    Rounding,
    SourceLine,
    TensorMapSpec,
    artifact_key,
    sha256,
)
from mlagen.artifact.maps import HandoffMap, KernelMap, MemoryMap, RegisterMap, RoleMap, TmemMap
from mlagen.artifact.store import ArtifactStore

__all__ = [
    "DTYPE_BYTES",
    "SCHEMA",
    "Arg",
    "Artifact",
    "ArtifactStore",
    "GridDim",
    "HandoffMap",
    "KernelMap",
    "Manifest",
    "MemoryMap",
    "Proof",
    "RegisterMap",
    "Resources",
    "RoleMap",
    "Rounding",
    "SourceLine",
    "TensorMapSpec",
    "TmemMap",
    "artifact_key",
    "file_names",
    "is_ptx",
    "read_artifact",
    "sha256",
    "write_artifact",
]
