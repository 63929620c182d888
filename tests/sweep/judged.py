"""What becomes of a form: it builds, or it is refused with the limit that it met."""

from __future__ import annotations

import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from swept_forms import Form

from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.errors import CapacityError, ConfigError, MissingError, MlagenError, UnsupportedError
from mlagen.problem.fields import problem_of

SHOWN = 400  # characters of a message
BUILDS, REFUSED = "builds", "refused"
GOOD = (BUILDS, REFUSED)
REFUSALS = (ConfigError, CapacityError, UnsupportedError)


@dataclass(frozen=True, slots=True)
class Judged:
    """`outcome`: "builds", "refused", or what is a fault of ours: "spills", "unproved" (a build
    that ends without a refusal, but with an artifact that is not proved), "silent" (a refusal that
    does not say what fits), "defect" (another error), "traceback"."""

    form: str
    outcome: str
    error: str = ""
    message: str = ""
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return self.outcome in GOOD

    def to_fields(self) -> dict[str, Any]:
        return asdict(self)


def judged(form: Form) -> Judged:
    """Builds the form, all the way to its code."""
    started = time.monotonic()
    outcome, error, message = _tried(form)
    took = round(time.monotonic() - started, 2)
    return Judged(str(form), outcome, error, " ".join(message.split())[:SHOWN], took)


def _tried(form: Form) -> tuple[str, str, str]:
    try:
        function = load(form.kernel)
        problem = problem_of(function.problem_type, dict(form.fields))
        artifact = build(function, problem, knobs=dict(form.knobs))
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
