"""DPP: a vector instruction whose first source comes from another lane.

The lane is a function of the reading lane's number, said by a control. A lane whose source lies
outside of the control's reach, or is masked off by EXEC, reads 0 with `bound_ctrl:0`; without it,
and outside of `row_mask` and `bank_mask`, the instruction leaves the lane's result as it was.
Source: CDNA4 ISA guide, DPP_CTRL; a row is 16 lanes, a bank four of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlagen.errors import TemplateError

CONTROLS: Mapping[str, range | None] = {
    "quad_perm": range(4),  # four of them: which lane of its quad each lane reads
    "row_shl": range(1, 16),  # from the lane so many above; none where that is in the next row
    "row_shr": range(1, 16),  # from the lane so many below
    "row_ror": range(1, 16),  # the same, around the row
    "row_newbcast": range(16),  # from this lane of its row
    "row_mirror": None,  # lane 15 - n of its row
    "row_half_mirror": None,  # lane 7 - n of its half row
    "row_bcast": range(15, 32, 16),  # 15: the last lane of the row before; 31: lane 31, from 32 on
    "wave_shl": range(1, 2),
    "wave_shr": range(1, 2),
    "wave_rol": range(1, 2),
    "wave_ror": range(1, 2),
}
"""What may follow each control's name; None: nothing."""

_MASKS = {"row_mask": range(16), "bank_mask": range(16), "bound_ctrl": range(2)}
_CONTROL = re.compile(rf"\s({'|'.join(CONTROLS)})\b")
_MODIFIER = re.compile(r"^(\w+)(?::(.*))?$")
HINT = (
    "instructions of 32 bits with one or two sources have one: v_mov_b32, v_add_f32, v_max_f32, …"
)


@dataclass(frozen=True, slots=True)
class Dpp:
    """One instruction's DPP modifiers. `keeps`: some lane may keep what its register held."""

    control: str
    keeps: bool


def of(modifiers: Sequence[str], where: str) -> Dpp | None:
    """The DPP part of an instruction's modifiers; None without one. TemplateError, which begins
    with `where`, names a control or mask that does not exist."""
    found: list[str] = []
    masks = {"row_mask": 15, "bank_mask": 15}
    zeroes = False
    for modifier in modifiers:
        name, value = _parts(modifier)
        if name in CONTROLS:
            _check(name, value, CONTROLS[name], where)
            found.append(name)
        elif name in _MASKS:
            number = _check(name, value, _MASKS[name], where)
            zeroes |= name == "bound_ctrl"  # the assembler sets the bit for 0 and for 1
            masks[name] = number
    if not found:
        return None
    if len(found) > 1:
        raise TemplateError(f"{where}: two DPP controls, {' and '.join(found)}")
    whole = masks["row_mask"] == masks["bank_mask"] == 15
    return Dpp(found[0], keeps=not (whole and zeroes))


def has_control(text: str) -> bool:
    """Whether an instruction's text has a DPP control."""
    return bool(_CONTROL.search(text))


def _parts(modifier: str) -> tuple[str, str | None]:
    match = _MODIFIER.match(modifier)
    return (match.group(1), match.group(2)) if match else ("", None)


def _check(name: str, value: str | None, legal: range | None, where: str) -> int:
    """The number after a name, of the legal ones; of a quad_perm the first of its four."""
    if legal is None:
        if value is not None:
            raise TemplateError(f"{where}: {name} takes no number")
        return 0
    count = 4 if name == "quad_perm" else 1
    listed = (value or "").strip("[]").split(",") if count > 1 else [value or ""]
    try:
        numbers = [int(number, 0) for number in listed]
    except ValueError:
        numbers = []
    if len(numbers) != count or any(number not in legal for number in numbers):
        known = ", ".join(map(str, legal)) if len(legal) < 4 else f"{legal[0]} to {legal[-1]}"
        takes = f"[a,b,c,d], each {known}" if count > 1 else known
        raise TemplateError(f"{where}: {name}:{value}", hint=f"{name}: takes {takes}")
    return numbers[0]
