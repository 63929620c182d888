"""What rests on a guess is unproved, and one finding a guess."""

from dataclasses import replace

from mlagen.audit.gfx950.causes import by_guess
from mlagen.audit.gfx950.findings import Finding
from mlagen.audit.ptx.causes import by_cause
from mlagen.audit.ptx.report import Finding as PtxFinding
from mlagen.audit.ptx.report import Notes
from mlagen.binary.instruction import MachineInstruction
from mlagen.severity import ERROR, UNPROVED, counted, failing

GUESS = "the cluster was taken to have 2 blocks (--cluster tells)"


def instruction(offset: int) -> MachineInstruction:
    return MachineInstruction("ds_read_b32", "DS", (), (), offset, 8)


def error(offset: int, **more: str) -> Finding:
    return Finding.at("lds-raw", ERROR, "k", (instruction(offset), None), resource="", needs="",
                      message=f"read at {offset}", **more)  # fmt: skip


def test_all_that_rests_on_a_guess_of_machine_code_is_one_finding():
    there = [Finding.assumed("k", instruction(8 * i), GUESS) for i in range(3)]
    found = by_guess([error(100), *there, error(64, guess=GUESS), error(32, guess=GUESS)])
    assert [f.severity for f in found] == [ERROR, UNPROVED]
    assert found[1].pc == 32 and len(found[1].places) == 5
    assert found[1].message == f"{GUESS}; 2 findings rest on it (2 lds-raw), first: read at 32"
    assert counted(found) == "1 error, 1 unproved" and len(failing(found)) == 1


def test_places_alone_are_counted():
    (one,) = by_guess(Finding.assumed("k", instruction(8 * i), GUESS) for i in range(3))
    assert (one.rule, one.message) == ("assumed", f"{GUESS}; 3 places rest on it")


def ptx(rule: str, line: int, guess: str = "") -> PtxFinding:
    found = PtxFinding(rule, "k", line, "st.shared", f"{rule} at {line}")
    return found.resting_on(guess) if guess else found


def test_all_that_rests_on_a_guess_of_ptx_is_one_finding():
    notes = Notes("k")
    notes.assume(GUESS)
    for finding in (ptx("smem-raw", 9, GUESS), ptx("deadlock", 7, GUESS), ptx("deadlock", 8)):
        notes.add(finding)
    error, unproved = by_cause(notes.found.values())
    assert (error.line, error.severity) == (8, ERROR)
    assert unproved.severity == UNPROVED and len(unproved.places) == 3
    assert unproved.message == (
        f"{GUESS}; 2 findings rest on it (1 deadlock, 1 smem-raw), first: deadlock at 7"
    )
    assert unproved.render().startswith("unproved[assumed] k:7: ")


def test_an_error_is_kept_where_a_guess_came_first():
    for order in (1, -1):
        notes = Notes("k")
        for finding in (ptx("smem-raw", 9, GUESS), ptx("smem-raw", 9))[::order]:
            notes.add(finding)
        assert [f.severity for f in notes.found.values()] == [ERROR] and notes.wrong


def test_an_assumption_alone_is_no_error():
    notes = Notes("k")
    notes.assume(GUESS)
    assert not notes.wrong
    (told,) = by_cause(notes.found.values())
    assert told.render() == f"unproved[assumed] k: {GUESS}"
    assert replace(told, places=()).render() == told.render()
