"""What a command is about, with a word on stderr where making it takes time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlagen.cli.progress import progress_bar
from mlagen.request import BuildTexts

if TYPE_CHECKING:
    from mlagen.artifact import Artifact


def artifact_of(kernel: str, texts: BuildTexts) -> Artifact:
    """`mlagen.request.artifact_of`: a finished artifact, or one that is built now."""
    from mlagen import request

    with progress_bar(f"building {kernel}"):
        return request.artifact_of(kernel, texts)


def built(kernel: str, texts: BuildTexts) -> Artifact:
    """`mlagen.request.build_from_text`."""
    from mlagen import request

    with progress_bar(f"building {kernel}"):
        return request.build_from_text(kernel, texts)
