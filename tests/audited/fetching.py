"""Repositories at the commits of the list, and the packages that compile, in a folder of one's own.

A repository comes from its public address, or from a folder of git directories that
`MLAGEN_GIT_MIRROR` names: OWNER+NAME/repo in it is github.com/OWNER/NAME.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from listed import Source

MIRROR = "MLAGEN_GIT_MIRROR"
_ONE = threading.Lock()  # fetches at a time; the list is worked on side by side


class NotFetchedError(Exception):
    """A source or a tool that cannot be had here, with the reason."""


def run(command: list[str], reason: str, env: dict[str, str] | None = None, **told: object) -> str:
    """Runs a command; NotFetchedError with the last lines of what it said where it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **(env or {})}, **told
        )  # type: ignore[call-overload]
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotFetchedError(f"{reason}: {error}") from error
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        wrong = [line for line in said if "error" in line.lower()] or said
        raise NotFetchedError(f"{reason}: {' '.join(wrong[:2])[:300]}")
    return str(done.stdout)


def source_folder(source: Source, cache: Path) -> Path:
    """The files of a source that the list names, at its commit; fetched once."""
    with _ONE:
        return _fetched(source, cache)


def _fetched(source: Source, cache: Path) -> Path:
    folder = cache / "sources" / f"{source.name}-{source.commit[:12]}"
    stamp = folder / ".complete"
    if stamp.is_file() and stamp.read_text() == repr(source.paths):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    git = _mirrored(source) or _cloned(source, cache)
    # An index of its own: a mirror stays as it is.
    index = {"GIT_INDEX_FILE": str(folder / ".index")}
    run(
        ["git", "--git-dir", str(git), "--work-tree", str(folder), "checkout", "-q",
         source.commit, "--", *source.paths],
        f"{source.url} at {source.commit[:12]}", index,
    )  # fmt: skip
    stamp.write_text(repr(source.paths))
    return folder


def _mirrored(source: Source) -> Path | None:
    named = os.environ.get(MIRROR)
    if not named:
        return None
    folder = Path(named) / "+".join(source.url.rstrip("/").split("/")[-2:]) / "repo"
    return folder if folder.is_dir() else None


def _cloned(source: Source, cache: Path) -> Path:
    """Commits and trees; git fetches files when they are checked out."""
    folder = cache / "git" / source.name
    if not folder.is_dir():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        run(["git", "clone", "-q", "--bare", "--filter=blob:none", source.url, str(part)],
            f"no clone of {source.url}", timeout=600)  # fmt: skip
        part.replace(folder)
    return folder


def tools(packages: tuple[str, ...], cache: Path) -> Path:
    """The Python of a virtual environment that has the packages; pip fetches them once."""
    with _ONE:
        return _installed(packages, cache)


def _installed(packages: tuple[str, ...], cache: Path) -> Path:
    folder = cache / "tools"
    python = folder / "bin" / "python"
    stamp = folder / ".complete"
    if not (stamp.is_file() and stamp.read_text() == repr(packages)):
        run([sys.executable, "-m", "venv", str(folder)], f"no virtual environment in {folder}")
        run([str(python), "-m", "pip", "install", "-q", *packages], "pip brings no compilers")
        stamp.write_text(repr(packages))
    return python
