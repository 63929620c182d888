"""An artifact against its oracles: run in the emulator, every element compared, defects located.

Each run is made once for every completion mode of asynchronous transfers: a kernel that waits for
what it uses gives the same bits in all of them. What is specific to a kind of problem (its inputs,
its oracles, what its sizes are called) comes from the `ProblemKind` that its family brings.

Each report also says which instructions no run executed. `verify_thoroughly` takes the sizes and
the data that reach all of them, as the kind of problem knows them.

    from mlagen.verify import verify, verify_thoroughly
    report = verify_thoroughly(artifact)
    report = verify(artifact, seq_len=512, data="realistic")
"""

from mlagen.verify.coverage import Coverage, CoverageGap
from mlagen.verify.report import SCHEMA, ModeReport, VerifyReport
from mlagen.verify.run import MODES, Mode, kind_of, verify, verify_inputs
from mlagen.verify.thorough import ThoroughReport, verify_thoroughly

__all__ = [
    "MODES",
    "SCHEMA",
    "Coverage",
    "CoverageGap",
    "Mode",
    "ModeReport",
    "ThoroughReport",
    "VerifyReport",
    "kind_of",
    "verify",
    "verify_inputs",
    "verify_thoroughly",
]
