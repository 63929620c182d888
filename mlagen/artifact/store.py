"""The store: artifacts by content, each a directory that a vendor's tools can read.

    root/3f/3f9c…/kernel.co, kernel.s, manifest.json

The key is the hash of text, tools and flags; problem and knobs only search.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mlagen.artifact.files import MANIFEST, decode_manifest, read_artifact, write_artifact
from mlagen.artifact.manifest import Artifact, Manifest
from mlagen.disk import read_file
from mlagen.errors import BinaryError, MissingError


class ArtifactStore:
    """Artifacts under `root`. Concurrent writers of one key write the same bytes."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def path(self, key: str) -> Path:
        """The directory of `key`, whether or not it exists."""
        return self.root / key[:2] / key

    def put(self, artifact: Artifact) -> Path:
        """Writes the artifact under its key and returns its directory."""
        return write_artifact(artifact, self.path(artifact.key), force=True)

    def get(self, key: str) -> Artifact:
        """The artifact of `key`. MissingError: not stored; BinaryError: damaged or misplaced."""
        directory = self.path(key)
        if not (directory / MANIFEST).is_file():
            raise MissingError(f"the store {self.root} has no artifact {key[:12]}")
        artifact = read_artifact(directory)
        if artifact.key != key:
            raise BinaryError(f"{directory} holds the artifact {artifact.key[:12]}, not its own")
        return artifact

    def __iter__(self) -> Iterator[tuple[str, Manifest | BinaryError]]:
        """(key, manifest) of every artifact, by key; in the place of a manifest that cannot be
        read, why. Manifests only: no code is read."""
        for path in sorted(self.root.glob(f"??/*/{MANIFEST}")):
            try:
                yield path.parent.name, decode_manifest(read_file(path), name=str(path))
            except BinaryError as error:
                yield path.parent.name, error
            except MissingError as error:
                yield path.parent.name, BinaryError(error.message)
