"""What a command says on stderr only where nothing was kept from an earlier run."""

import re


def without_notes(text: str) -> str:
    """The text less the line that says that an emulator is compiled."""
    return re.sub(r"(?m)^compiling the (?:PTX )?emulator.*\n", "", text)
