"""What a command is about, with a word on stderr where making it takes time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlagen.app.texts import BuildTexts
from mlagen.cli.progress import progress_bar

if TYPE_CHECKING:
    from mlagen.artifact import Artifact


def artifact_of(kernel: str, texts: BuildTexts) -> Artifact:
    """`mlagen.app.texts.artifact_of`: a finished artifact, or one that is built now."""
    from mlagen.app import texts as app

    with progress_bar(f"building {kernel}"):
        return app.artifact_of(kernel, texts)


def built(kernel: str, texts: BuildTexts) -> Artifact:
    """`mlagen.app.texts.build_from_text`."""
    from mlagen.app import texts as app

    with progress_bar(f"building {kernel}"):
        return app.build_from_text(kernel, texts)
