"""A folder of AITER's objects, and of older ones; each is recorded when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Generic, TypeVar

Recorded = TypeVar("Recorded")


class ObjectFolder(Generic[Recorded]):
    """Objects of `folder`, by their place below `hsa/gfx950`.

    `history`: a folder with `<commit>/hsa/gfx950/…` of older objects; where it lacks the object of
    a commit, the folder's own stands in (`substitutes` names kernel and commit). `progress` is told
    the object that is recorded.
    """

    def __init__(
        self,
        folder: str | Path,
        history: str | Path | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.history = Path(history) if history is not None else None
        self.progress = progress
        self.substitutes: set[tuple[str, str]] = set()
        self._held: dict[Hashable, Recorded] = {}

    def place(self, name: str, path: str, commit: str | None) -> Path:
        """Where a kernel's object of `commit` is, of the newest one without it."""
        if commit is not None:
            if self.history is not None:
                older = self.history / commit / "hsa" / "gfx950" / path
                if older.is_file():
                    return older
            self.substitutes.add((name, commit))
        return self.folder / path

    def kept(self, path: Path, key: Hashable, made: Callable[[], Recorded]) -> Recorded:
        """What `made` records of the object at `path`, once for each `key`."""
        if key not in self._held:
            if self.progress:
                self.progress(str(path))
            self._held[key] = made()
        return self._held[key]
