"""Rows of instructions: agents."""

from __future__ import annotations

from mlagen.emulator.ptx.translate.agents import copies, launching, synchronisation, tensor_copies
from mlagen.emulator.ptx.translate.rows import Row, Translation, Translator, not_modelled
from mlagen.ptx import Instruction


def _cp(t: Translator, i: Instruction) -> Row:
    if "bulk" not in i.parts:
        return copies.lanes(t, i)
    if "commit_group" in i.parts or "wait_group" in i.parts:
        return copies.bulk_groups(t, i)
    if "tensor" in i.parts:
        return tensor_copies.tensor_copy(t, i)
    if i.parts[1] not in ("async", "reduce"):
        raise not_modelled(i)
    return copies.bulk(t, i)


TRANSLATIONS: dict[str, Translation] = {
    "cp": _cp,
    "st.async": copies.words,
    "red.async": copies.words,
    **synchronisation.TRANSLATIONS,
    **launching.TRANSLATIONS,
}
