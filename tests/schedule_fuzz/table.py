"""Results of the fuzzer as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from fuzzed import CASES

Result = dict[str, Any]
SURVIVED = ("right", "wrong", "hang", "died")
BAD = ("wrong", "hang", "died", "crash")
_TARGET = {case.name: case.target for case in CASES}


def edits_of(found: Iterable[Result]) -> list[Result]:
    """Without the unedited kernels."""
    return [x for x in found if x["seed"] >= 0]


def survived(result: Result) -> bool:
    """Whether it passed the proof, with another text than the unedited kernel's."""
    return result["outcome"] in SURVIVED and not result.get("message", "").endswith("at: build")


def failures(found: Iterable[Result]) -> list[Result]:
    """What must not be: proved and wrong, endless, an exception that is no error of mlagen's."""
    return [x for x in found if x["outcome"] in BAD]


def _row(label: str, found: list[Result]) -> str:
    by = Counter(x["outcome"] for x in found)
    refused = Counter(x["error"] for x in found if x["outcome"] == "refused")
    alive = [x for x in found if survived(x)]
    texts = len({(x["case"], x.get("text")) for x in alive})
    why = ", ".join(f"{name} {count}" for name, count in refused.most_common(4))
    other = sum(refused.values()) - sum(count for _, count in refused.most_common(4))
    why += f", others {other}" if other else ""
    return (f"| {label} | {len(found)} | {by['refused']} | {by['unchanged']} | {len(alive)} | "
            f"{texts} | {by['right']} | {by['wrong']} | {by['hang'] + by['died']} | "
            f"{by['crash']} | {why} |")  # fmt: skip


HEAD = ("edits | refused | unchanged | survived | different texts | right | WRONG | no end | "
        "crash | refused by |")  # fmt: skip


def tables(found: list[Result]) -> str:
    """By kernel, by kind of edit, and by target."""
    edits = edits_of(found)
    lines = []
    for target in ("gfx950", "sm_90a", "sm_100a"):
        of = [x for x in edits if _TARGET.get(x["case"]) == target]
        if not of:
            continue
        for title, key in (("kernel", "case"), ("edit", "kind")):
            lines += [f"\n{target}\n\n| {title} | {HEAD}", "|---" * 11 + "|"]
            for value in dict.fromkeys(x[key] for x in of):
                lines.append(_row(value, [x for x in of if x[key] == value]))
            lines.append(_row("**all**", of))
    return "\n".join(lines)


def summary(found: list[Result]) -> str:
    """Speed, and what went wrong unedited."""
    edits = edits_of(found)
    seconds = sum(x.get("build", 0) + x.get("judge", 0) for x in edits)
    alive = [x for x in edits if survived(x)]
    unedited = [x for x in found if x["seed"] < 0 and x["outcome"] != "right"]
    lines = [
        f"{len(edits)} edits, {len(alive)} survived the proof; {seconds:.0f} s of one core: "
        f"{60 * len(edits) / max(seconds, 1e-9):.0f} edits and "
        f"{60 * len(alive) / max(seconds, 1e-9):.0f} survivors a minute"
    ]
    lines += [f"unedited {x['case']}: {x['outcome']}: {x.get('message')}" for x in unedited]
    return "\n".join(lines)
