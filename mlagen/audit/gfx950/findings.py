"""What an audit of machine code says of one pair of instructions."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from mlagen.audit.gfx950.weak import WeakWait
from mlagen.binary.instruction import MachineInstruction
from mlagen.severity import ASSUMED, UNPROVED, Severity

# Rule -> what it demands. The list in docs/audit.md is held to this one by a test.
RULES: dict[str, str] = {
    "missing-wait": "a register that a load fills is used only after a wait that covers it",
    "overwrite-in-flight": "a register that a load fills is not written while it is on its way",
    "smem-order": "only lgkmcnt(0) covers a scalar load: they return in any order",
    "lds-raw": "LDS is read only after a wait, for other waves a barrier, covers its write",
    "lds-war": "LDS is overwritten only after a wait and a barrier cover the reads of it",
    "lds-waw": "two writes of the same LDS are ordered",
    "lds-bounds": "LDS accesses stay inside what the kernel asks for",
    "register-bounds": "instructions name no more registers than the kernel allocates",
    "wait-states": "instructions whose results need wait states are that far from their uses",
    "barrier-unequal": "waves pass the same barriers, as far as they go",
    "partial-exec": "all lanes are on at a read of LDS that moves data between lanes",
    "off-lane": "a lane takes data only from lanes that are on",
    "counter-capacity": "no wait is left out because more is outstanding than a counter counts",
    ASSUMED: "what the object does not say is as it was taken to be",
    "stricter-wait": "a wait asks for no more than what follows it needs",
}


@dataclass(frozen=True, slots=True)
class InstructionPair:
    """A pair of instructions that shows a finding; the fields are those of Finding."""

    rule: str
    pc: int
    asm: str
    other_pc: int | None
    other_asm: str
    resource: str
    needs: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause, shown by a pair of instructions on some path, and by all of `places`.

    A wait that is missing once may show wherever its results are used: that is one finding.

    `pc`, `other_pc`: byte offsets from the kernel's entry (`other_pc` None where one instruction
    is enough). `places`: every pair that shows it, this one included. `resource`: the registers or
    LDS bytes. `needs`: what would repair it, or would be enough ("vmcnt(4)", "s_nop 3"). `changes`:
    byte offsets of the instructions that have to say that, one a copy of the code; () where an
    instruction is missing, or not known.
    `severity`: a word of mlagen.severity. `guess`: what the finding rests on, which makes it
    unproved; "" for nothing.
    """

    rule: str
    severity: Severity
    kernel: str
    pc: int
    asm: str
    other_pc: int | None
    other_asm: str
    resource: str
    needs: str
    message: str
    places: tuple[InstructionPair, ...] = ()
    guess: str = ""
    changes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.places:
            object.__setattr__(self, "places", (self.place,))

    @property
    def counter(self) -> str:
        """The counter that a wait is needed on: "vmcnt", "lgkmcnt"."""
        return self.needs.partition("(")[0]

    @property
    def count(self) -> int:
        """What the wait has to leave at most; 0 where nothing says so."""
        number = self.needs.partition("(")[2].partition(")")[0]
        return int(number) if number.isdigit() else 0

    @property
    def place(self) -> InstructionPair:
        """The pair that the message tells."""
        return InstructionPair(
            **{field.name: getattr(self, field.name) for field in fields(InstructionPair)}
        )

    @classmethod
    def at(
        cls,
        rule: str,
        severity: Severity,
        kernel: str,
        pair: tuple[MachineInstruction, MachineInstruction | None],
        *,
        resource: str,
        needs: str,
        message: str,
        guess: str = "",
    ) -> Finding:
        """A finding on a pair of instructions; None: one is enough. With a `guess` that it rests
        on, it is unproved, whatever `severity` says."""
        ins, other = pair
        pc, asm = (other.offset, str(other)) if other else (None, "")
        return cls(
            rule,
            UNPROVED if guess else severity,
            kernel,
            ins.offset,
            str(ins),
            pc,
            asm,
            resource,
            needs,
            message,
            guess=guess,
        )

    def changing(self, wait: WeakWait | None) -> Finding:
        """The finding, mended at a wait that asks for too little, if there is one."""
        return self if wait is None else replace(self, changes=(wait.pc,))

    @classmethod
    def assumed(
        cls, kernel: str, ins: MachineInstruction, guess: str, *, resource: str = ""
    ) -> Finding:
        """An instruction that rests on a guess, though it breaks no rule."""
        return cls.at(ASSUMED, UNPROVED, kernel, (ins, None), resource=resource, needs="",
                      message=guess, guess=guess)  # fmt: skip
