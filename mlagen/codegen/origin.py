"""Where a line of generated text came from, for the messages of assemblers."""

from __future__ import annotations

from mlagen.artifact import SourceLine


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
