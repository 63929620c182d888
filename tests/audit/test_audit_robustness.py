"""Text that is no PTX, or PTX with a part missing: one clear error with its line, or an audit."""

import random
from pathlib import Path

import pytest
from ptx_snippets import kernel

from mlagen.audit.ptx import Given, audit_ptx
from mlagen.errors import MlagenError

KERNELS = sorted((Path(__file__).parent / "kernels").glob("*.ptx"))
SMALL = (Path(__file__).parent / "kernels" / "gemm_gather.ptx").read_text()


def outcome(text):
    """Findings, or the error's text; anything else is a crash."""
    try:
        return audit_ptx(text, Given(trips=1), first=True).findings
    except MlagenError as error:
        assert error.message and "\n" not in error.message
        return error.message


@pytest.mark.parametrize("seed", range(40))
def test_truncated_text(seed):
    text = random.Random(seed).choice(KERNELS).read_text()
    cut = text[: random.Random(seed).randrange(len(text))]
    assert isinstance(outcome(cut), str)


@pytest.mark.parametrize("seed", range(60))
def test_garbled_text(seed):
    rng = random.Random(seed)
    text = list(SMALL)
    for _ in range(rng.choice((1, 3, 20))):
        at = rng.randrange(len(text))
        text[at] = rng.choice('%.,;:[]{}()0129abz-+@!\n "\\')
    outcome("".join(text))


@pytest.mark.parametrize("seed", range(40))
def test_lines_lost_or_swapped(seed):
    rng = random.Random(seed)
    lines = SMALL.splitlines()
    for _ in range(3):
        at = rng.randrange(20, len(lines) - 1)
        if rng.random() < 0.5:
            del lines[at]
        else:
            lines[at], lines[at + 1] = lines[at + 1], lines[at]
    outcome("\n".join(lines))


@pytest.mark.parametrize("seed", range(20))
def test_operands_lost(seed):
    rng = random.Random(seed)
    lines = SMALL.splitlines()
    for _ in range(2):
        at = rng.choice([i for i, line in enumerate(lines) if "," in line and i > 30])
        pieces = lines[at].rstrip(";").split(",")
        pieces.pop(rng.randrange(len(pieces)))
        lines[at] = ",".join(pieces) + ";"
    outcome("\n".join(lines))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no PTX text"),
        ("\x7fELF\x02", "no PTX text"),
        (".version 8.0\n.target sm_90a\n", "no .entry"),
        (".version 8.0\n.target sm_90a\n.entry k() {\n ret;\n", "line 3: '{' is never closed"),
        (".version 8.0\n.target sm_90a\n.entry k() {\n bra X;\n}", "line 4: no label"),
        (".version 8.0\n.target sm_90a\n.entry k() {\n mbarrier;\n}", "line 4: mbarrier without"),
        (".version 8.0\n.target sm_90a\n.entry k() {\n mov.u32 %a;\n}", "line 4: mov takes 2"),
        (
            ".version 8.0\n.target sm_90a\n.entry k() {\n mbarrier.init.b64 4, 1;\n}",
            "line 4: operands that this instruction does not take",
        ),
        (
            ".version 8.0\n.target sm_90a\n.entry k() {\n cp.async.bulk.shared::cluster."
            "shared::cta.mbarrier::complete_tx::bytes [%a], [%b], [%c];\n}",
            "line 4: a bulk copy names target, source, mbarrier",
        ),
        (
            ".version 8.0\n.target sm_90a\n.entry k() {\n st.async.shared::cluster.b32 [%a], 1;\n}",
            "line 4: operands that this instruction does not take",
        ),
        (".version 8.6\n.target sm_100a\n.entry k() {\n tcgen05;\n}", "line 4: tcgen05 without"),
        (
            ".version 8.6\n.target sm_100a\n.entry k() {\n tcgen05.alloc.b32 [%a];\n}",
            "line 4: tensor memory is taken and freed by address and columns",
        ),
        (
            f".version 8.0\n.target sm_90a\n.entry k() {{\n mov.u64 %a, {1 << 70};\n}}",
            "line 4: a number of more than 64 bits",
        ),
    ],
)
def test_errors_name_the_line(text, told):
    with pytest.raises(MlagenError, match=told.replace("{", r"\{").replace(".", r"\.")):
        audit_ptx(text)


@pytest.mark.parametrize("how", ["most.pred", "ballot.b32"])
@pytest.mark.parametrize("guard", ["%p1", "!%p1"])
def test_a_predicate_that_holds_no_truth_value_parts_threads_once(how, guard):
    """A vote of no known kind, or one of bits, into a predicate: every group has threads."""
    body = f"""
    setp.lt.u32 %p0, %t, 7;
    vote.sync.{how} %p1, %p0, -1;
    @{guard} bra L;
    bar.sync 1;
L:
    bar.sync 0;
"""
    assert audit_ptx(kernel(body)).entries


def test_a_kernel_that_never_ends_is_told():
    report = audit_ptx(kernel("L:\n    bar.sync 0;\n    bra L;\n", threads=32))
    assert any("did not end" in gap for gap in report.unchecked)
