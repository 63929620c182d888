"""Where a line of generated text came from, for the messages of assemblers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mlagen.artifact import SourceLine

_LONG_LIST = re.compile(r"\{\s*([^,{}]+)(?:,[^,{}]+){3,},\s*([^,{}]+?)\s*\}")


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated text, the name that messages have for it, and where its lines came from."""

    text: str
    file_name: str
    source_lines: Mapping[int, SourceLine]
    schedule_file: str

    def at(self, number: int, what: str) -> str:
        """What is said of a line, with the line, long register lists cut ({%d0, .. %d127}), and
        its origin."""
        lines = self.text.splitlines()
        quoted = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        shown = _LONG_LIST.sub(r"{\1, .. \2}", quoted)
        where = origin(self.source_lines.get(number), self.schedule_file)
        return f"{self.file_name}:{number}: {what}\n    {shown}\n    {where}"


def origin(line: SourceLine | None, schedule_file: str) -> str:
    """Where a line of the text came from, for a message: template and schedule line."""
    if line is None:
        return "from the skeleton: no template line is recorded for it"
    where = [line.section, f"cluster {line.cluster}" if line.cluster else "", line.operation]
    schedule = f", schedule {schedule_file}:{line.schedule_line}" if line.schedule_line else ""
    return (
        f"from template {line.template}:{line.template_line}{schedule}"
        f" ({', '.join(part for part in where if part)})"
    )
