"""The palette of instruction kinds, the legend that explains it, and the style of a page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Colour:
    """How a kind of instruction looks on a light and on a dark page, and what it is."""

    light: str
    dark: str
    meaning: str


# Kinds of instructions, by the unit that takes them; in the order of legends.
PALETTE = {
    "matrix": Colour("#3b6fd8", "#6d9bf2", "matrix products: MFMA, wgmma"),
    "vector": Colour("#3fa66b", "#5cc48a", "vector arithmetic"),
    "transcendental": Colour("#9a5fd0", "#b98be6", "exp2, log2, reciprocals"),
    "lds": Colour("#e08a2e", "#f0a552", "LDS or SMEM reads and writes"),
    "dma": Colour("#c9552f", "#e5794f", "copies from global memory to LDS or SMEM"),
    "vmem": Colour("#b8912b", "#d8b450", "vector loads and stores of global memory"),
    "smem": Colour("#8d8a55", "#aeab6f", "scalar loads"),
    "scalar": Colour("#8995a7", "#8b96a8", "scalar arithmetic"),
    "branch": Colour("#6b7280", "#a0a8b5", "branches"),
    "wait": Colour("#d64a6a", "#f07a95", "s_waitcnt and other waits"),
    "barrier": Colour("#2c3442", "#d7dde8", "barriers"),
    "nop": Colour("#c3cbd8", "#39445a", "s_nop: wait states"),
    "priority": Colour("#a9b1bf", "#566176", "s_setprio"),
    "end": Colour("#1d2330", "#e3e7ee", "the end of the program"),
}
# Everything else on a page, and shades for what is told apart only (clusters, areas).
PAGE = {
    "bg": ("#fbfbfa", "#12151b"), "panel": ("#ffffff", "#1a1f28"), "ink": ("#1d2330", "#e3e7ee"),
    "soft": ("#667085", "#97a1b3"), "line": ("#dfe3ea", "#2c3442"), "hover": ("#eef3ff", "#232c3d"),
    "through": ("#c3cbd8", "#39445a"), "empty": ("#eceff4", "#222936"),
    "good": ("#3fa66b", "#5cc48a"), "bad": ("#d64a4a", "#f07070"),
    "shade-0": ("#4878c8", "#5d86cc"), "shade-1": ("#45946a", "#4f9d74"),
    "shade-2": ("#a86b2d", "#b57a3e"), "shade-3": ("#8a5bb8", "#966bc0"),
    "shade-4": ("#b04a68", "#bb5a77"), "shade-5": ("#3d8c98", "#4c97a2"),
}  # fmt: skip
SHADES = 6


def shades() -> str:
    """Every colour as a CSS variable, for a light page and, where it is asked for, a dark one."""
    light = {**{n: c.light for n, c in PALETTE.items()}, **{n: a for n, (a, _) in PAGE.items()}}
    dark = {**{n: c.dark for n, c in PALETTE.items()}, **{n: b for n, (_, b) in PAGE.items()}}

    def rules(colours: dict[str, str]) -> str:
        return " ".join(f"--{name}: {colour};" for name, colour in colours.items())

    return (
        f":root {{ color-scheme: light dark; {rules(light)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {rules(dark)} }} }}\n"
    )


def style() -> str:
    """The CSS that every page begins with: colours, fonts, tables, legends."""
    kinds = "".join(f".p-{n} {{ background: var(--{n}); fill: var(--{n}); }}\n" for n in PALETTE)
    return shades() + resources.files("mlagen.pages").joinpath("base.css").read_text() + kinds


def legend(names: Iterable[str]) -> str:
    """The legend of these kinds, in the palette's order, as HTML: each colour with its meaning."""
    wanted = set(names)
    return "".join(
        f'<span title="{colour.meaning}"><b class="p-{name}"></b>{name}: {colour.meaning}</span>'
        for name, colour in PALETTE.items()
        if name in wanted
    )
