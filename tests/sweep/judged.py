"""What becomes of a form: it builds, or it is refused with the limit that it met.

ptxas takes most of a build's time for NVIDIA. A text that differs from an assembled one in numbers
alone, an address or a count of heads, needs the registers that the other has: such a form is
generated and proved, but not assembled. What is not shown of it is that ptxas takes its numbers.
"""

from __future__ import annotations

import hashlib
import re
import time
import traceback
from collections.abc import Container
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from swept_forms import Form

from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.errors import CapacityError, ConfigError, MissingError, MlagenError, UnsupportedError
from mlagen.problem.fields import problem_of
from mlagen.targets.nvidia.ptxas import PtxasResult, assemble_ptx

SHOWN = 400  # characters of a message
BUILDS, PROVED, REFUSED = "builds", "proved", "refused"
GOOD = (BUILDS, PROVED, REFUSED)
REFUSALS = (ConfigError, CapacityError, UnsupportedError)
_NUMBER = re.compile(r"(?<![\w%$.])-?(?:0[xX][0-9a-fA-F]+|\d+)\b")
_COMMENT = re.compile(r"//.*")


@dataclass(frozen=True, slots=True)
class Judged:
    """`outcome`: "builds", "proved" (as one that builds, but for numbers), "refused", or what is a
    fault of ours: "spills", "unproved" (a build that ends without a refusal, but with an artifact
    that is not proved), "silent" (a refusal that does not say what fits), "defect" (another error),
    "traceback". `alike`: of its PTX without numbers, "" where there is none."""

    form: str
    outcome: str
    error: str = ""
    message: str = ""
    seconds: float = 0.0
    alike: str = ""

    @property
    def good(self) -> bool:
        return self.outcome in GOOD

    def to_fields(self) -> dict[str, Any]:
        return asdict(self)


def without_numbers(text: str) -> str:
    """A digest of PTX that texts share which differ in numbers and comments alone."""
    bare = _NUMBER.sub("#", _COMMENT.sub("", text))
    return hashlib.sha256(bare.encode()).hexdigest()[:16]


class _Known(Exception):
    """The text is as one that was assembled."""


def judged(form: Form, assembled: Container[str] = ()) -> Judged:
    """Builds the form, all the way to its code; only to its text where `assembled` has this."""
    started = time.monotonic()
    alike = ""

    def assemble(text: str, **rest: Any) -> PtxasResult:
        nonlocal alike
        alike = without_numbers(text)
        if alike in assembled:
            raise _Known
        return assemble_ptx(text, **rest)

    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", assemble):
        outcome, error, message = _tried(form)
    took = round(time.monotonic() - started, 2)
    return Judged(str(form), outcome, error, " ".join(message.split())[:SHOWN], took, alike)


def _tried(form: Form) -> tuple[str, str, str]:
    try:
        function = load(form.kernel)
        problem = problem_of(function.problem_type, dict(form.fields))
        artifact = build(function, problem, knobs=dict(form.knobs))
    except _Known:
        return PROVED, "", ""
    except MissingError:  # no assembler: nothing is known of the form
        raise
    except MlagenError as error:
        return _kind(error), type(error).__name__, str(error)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(at.filename).name}:{at.lineno}"
        return "traceback", type(error).__name__, f"{error} at {place}"
    manifest = artifact.manifest
    if manifest.proof.status != "proved":
        return "unproved", "", "; ".join(manifest.proof.reasons)
    if manifest.resources.scratch_bytes or manifest.resources.vgpr_spills:
        return "spills", "", str(manifest.resources)
    return BUILDS, "", ""


def _kind(error: MlagenError) -> str:
    """Of a build that ended with an error: CapacityError is a refusal of what a knob asks for, and
    ptxas alone knows of spills, which no problem and no knob foresees."""
    if "spills:" in error.message or "ptxas" in error.message:
        return "spills"
    if not isinstance(error, REFUSALS):
        return "defect"
    return REFUSED if error.hint else "silent"
