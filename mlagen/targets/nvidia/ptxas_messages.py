"""What ptxas says, and what it means: its messages as values, at the lines that made them.

Which of them end a build: every error; and every remark (C75xx) that wgmma is serialised, that a
wait or a fence was put in, or that `setmaxnreg` is ignored. Wordings differ between releases (seen:
13.0.88 and 13.5.37), so a remark is known by its code first and by its words second.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mlagen.codegen.origin import Generated
from mlagen.env import PTXAS
from mlagen.errors import CapacityError, ScheduleError, TemplateError

# ptxas k.ptx, line 41; error   : Unknown modifier '.comit_group'
# ptxas info    : (C7517) wgmma.wait_group is injected in around line 43 by compiler to …
_MESSAGE = re.compile(
    r"^ptxas (?:(?P<file>[^,\n]+), line (?P<line>\d+); )?"
    r"(?P<severity>info|warning|error|fatal)\s*: (?:\((?P<code>C\d+)\) )?(?P<text>.*)$",
    re.M,
)
_INNER_LINE = re.compile(r"(?:around|in|at) line (\d+)")
_SUMMARY = "Ptx assembly aborted"
_FIGURES = ("Used ", "Compiling entry", "Function properties", "Compile time", "gmem", "bytes gmem")
# Those that keep all forms of the decode kernels in registers: 13.0.48, 13.0.88, 13.1.115 and
# 13.2.86 do; 13.3.73 and 13.4.92 spill 588 bytes of one with `persistent=1` and 4 of some over e4m3
# caches.
FITTING = "13.0 to 13.2"
_SHOWN = 5  # messages quoted in one error; the rest are counted
_SUSPECTS = 3  # lines named for a message that names none

# Words of a remark -> what it means and what to do.
_MEANINGS = (
    ("insufficient register", "what is in flight at once does not fit the registers"),
    ("Insufficient registers", "what is in flight at once does not fit the registers"),
    ("function boundary", "wgmma cannot be in flight over a call: keep one kernel without calls"),
    ("Extern calls", "wgmma cannot be in flight over a call: keep one kernel without calls"),
    ("defining input registers", "an A operand is written while its wgmma may be reading it"),
    (
        "reading accumulator",
        "an accumulator is used while its wgmma may be writing it: wait first, on every path; for "
        "one in flight over a loop's back edge ptxas understands wait_group 0 only",
    ),
    ("defining accumulator", "an accumulator is written while its wgmma may be using it"),
    ("ill formed pipeline", "fence, wgmma, commit and wait must follow each other on every path"),
    ("divergent path", "fence, commit and wait must be passed by all threads of the warpgroup"),
    (
        "arrive is injected",
        "registers of this wgmma were written since the last wgmma.fence, or it is predicated "
        "(use its scale-d operand instead)",
    ),
    (
        "is injected",
        "an accumulator is used here while its wgmma may be writing it: no wait covers it",
    ),
    (
        "unable to determine register count at entry",
        "setmaxnreg needs the register count at entry: .maxnreg, or .minnctapersm beside .maxntid "
        "or .reqntid",
    ),
    ("minimum register", "setmaxnreg leaves fewer registers than the code needs"),
    ("setmaxnreg", "setmaxnreg has no effect: keep one kernel, without calls or -g"),
)
_OUT_OF_ROOM = re.compile(
    r"insufficient register|uses too much shared|too much (?:data|memory)", re.I
)


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `line` is of the PTX text, 0 where ptxas names none."""

    severity: str  # "info", "warning", "error" or "fatal"
    code: str  # "C7517", or ""
    text: str
    line: int = 0

    @property
    def stops(self) -> bool:
        """Whether a build ends on it."""
        if self.severity in ("error", "fatal"):
            return True
        words = ("serialized", "is injected", "setmaxnreg")
        return self.code.startswith("C75") or any(word in self.text for word in words)

    @property
    def meaning(self) -> str:
        """What a remark means and what to do about it; "" where its words say it."""
        if self.severity == "error":
            return ""
        return next((meaning for words, meaning in _MEANINGS if words in self.text), "")

    def __str__(self) -> str:
        return f"({self.code}) {self.text}" if self.code else self.text


def parse(said: str, file_name: str) -> tuple[Message, ...]:
    """The messages in what ptxas said, figures and its closing line apart."""
    found = []
    for match in _MESSAGE.finditer(said):
        text = match["text"].strip().removesuffix(" in line 0")
        figures = match["severity"] == "info" and any(word in text for word in _FIGURES)
        if text.startswith(_SUMMARY) or figures:
            continue
        inner = _INNER_LINE.search(text)
        line = match["line"] if match["file"] == file_name else inner[1] if inner else 0
        found.append(Message(match["severity"], match["code"] or "", text, int(line or 0)))
    return tuple(found)


def explain(
    messages: Sequence[Message],
    made: Generated,
    *,
    tool: str,
    spilled: tuple[int, int],
    registers: int,
) -> ScheduleError | None:
    """The error that ends this build, or None. `spilled`: bytes of spill stores and loads."""
    stopping = [message for message in messages if message.stops]
    if not stopping and not any(spilled):
        return None
    name = made.file_name
    shown = []
    for message in stopping[:_SHOWN]:
        told = made.at(message.line, str(message)) if message.line else f"{name}: {message}"
        if message.meaning:
            told += f"\n    {message.meaning}"
        if not message.line:
            told += "".join(
                f"\n  suspected: {made.at(*place)}" for place in _suspects(message, made.text)
            )
        shown.append(told)
    if len(stopping) > _SHOWN:
        shown.append(f"and {len(stopping) - _SHOWN} more")
    if any(spilled):
        shown.append(
            f"{name}: spills: {spilled[0]} bytes stored, {spilled[1]} bytes loaded, at "
            f"{registers} registers a thread"
        )
    kind: type[ScheduleError] = ScheduleError
    if any(message.severity in ("error", "fatal") for message in stopping):
        kind = TemplateError
    hint = None
    if any(spilled) or any(_OUT_OF_ROOM.search(message.text) for message in stopping):
        kind = CapacityError
        hint = "a smaller tile, fewer accumulators in flight, or fewer threads with more registers"
        if any(spilled):
            hint += f"; shipped schedules fit with ptxas {FITTING}, which ${PTXAS} can name"
    verb = "refuses" if kind is TemplateError else "cannot keep the schedule of"
    return kind(f"ptxas {verb} " + "\n  ".join(shown) + f"\n  ({tool})", hint=hint)


def _suspects(message: Message, text: str) -> list[tuple[int, str]]:
    """Lines that may have caused a message that names none, with a note on each."""
    # Only a refusal needs to read PTX.
    from mlagen.targets.nvidia.wgmma_flow import lines_of, touches

    if "setmaxnreg" in message.text:
        found = [(line, "this one") for line in lines_of(text, "setmaxnreg")]
    elif "function boundary" in message.text or "Extern calls" in message.text:
        found = [(line, "the call") for line in lines_of(text, "call")]
    elif "insufficient register" in message.text:
        found = [(line, "the first wgmma") for line in lines_of(text, "wgmma.mma_async")[:1]]
    elif "wgmma" in message.text:
        role = "input" if "input" in message.text else "accumulator"
        first: dict[int, tuple[int, str]] = {}  # one use for each wgmma
        for touch in touches(text):
            if touch.role == role:
                issued = ", issued before the loop's back edge" if touch.crossed else ""
                note = f"{touch.register} is an {role} of the wgmma in line {touch.wgmma_line}"
                first.setdefault(touch.wgmma_line, (touch.line, f"{note}{issued}"))
        found = list(first.values())
    else:
        found = []
    return found[:_SUSPECTS]
