"""Text to code object: assembles and links one kernel, and explains an assembler's error.

The bytes depend on the text, its file name, the tool and the flags, and on nothing else: the tools
run inside a fresh directory on relative names, and the debug information is told that it was made
in ".". The line table stays in the object, so that a finding on the binary finds its line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from mlagen.artifact import SourceLine
from mlagen.codegen.origin import Generated
from mlagen.codegen.scratch import scratch
from mlagen.codegen.tools import Tools, run
from mlagen.errors import ConfigError, MissingError, TemplateError
from mlagen.targets.gfx950.clang import TRIPLE, find_tools

_ERROR = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+):(?P<column>\d+): error: (?P<text>.*)$", re.M)
_SHOWN = 5  # errors quoted in one message; the rest are counted


def assembler_flags(target: str) -> tuple[str, ...]:
    """Flags of the assembler, paths apart. They are a part of an artifact's key."""
    return (
        f"--target={TRIPLE}",
        f"-mcpu={target}",
        "-g",
        "-fdebug-compilation-dir=.",
        "-x",
        "assembler",
    )


def linker_flags() -> tuple[str, ...]:
    """Flags of the linker. They are a part of an artifact's key."""
    return ("-shared", "--build-id=none")


def build_flags(target: str) -> tuple[str, ...]:
    """All flags, for the manifest."""
    return (*assembler_flags(target), *linker_flags())


def assemble(
    text: str,
    *,
    file_name: str,
    source_lines: Mapping[int, SourceLine],
    schedule_file: str,
    target: str = "gfx950",
    toolchain: Tools | None = None,
) -> bytes:
    """Assembles and links `text` and returns the code object.

    `file_name` is the name the line table carries (`KERNEL.s`); `source_lines` maps lines
    of the text to where they came from. Raises TemplateError for text that does not assemble,
    naming instruction, line, template line and schedule line; MissingError without a toolchain.
    """
    if Path(file_name).name != file_name or not file_name.endswith(".s"):
        raise ConfigError(f"{file_name!r} is no plain file name ending in .s")
    tools = toolchain or find_tools(target)
    clang, lld = tools.commands
    with scratch() as work:
        (work / file_name).write_text(text)
        command = (*clang, *assembler_flags(target), "-c", file_name, "-o", "kernel.o")
        done = run(command, cwd=work)
        if done is None:
            raise MissingError(f"{clang[0]} cannot be run")
        if done.returncode:
            made = Generated(text, file_name, source_lines, schedule_file)
            raise _explain(done.stderr, made, tools)
        done = run((*lld, *linker_flags(), "kernel.o", "-o", "kernel.co"), cwd=work)
        if done is None:
            raise MissingError(f"{lld[0]} cannot be run")
        if done.returncode:
            raise TemplateError(f"{file_name} does not link: {done.stderr.strip()}")
        return (work / "kernel.co").read_bytes()


def _explain(stderr: str, made: Generated, tools: Tools) -> TemplateError:
    """The assembler's errors at the lines that made them."""
    name = made.file_name
    errors = [found for found in _ERROR.finditer(stderr) if found["file"] == name]
    if not errors:
        return TemplateError(f"{name} does not assemble ({tools.version}): {stderr.strip()}")
    shown = [made.at(int(found["line"]), found["text"]) for found in errors[:_SHOWN]]
    if len(errors) > _SHOWN:
        shown.append(f"and {len(errors) - _SHOWN} more")
    return TemplateError("the assembler refuses " + "\n  ".join(shown))
