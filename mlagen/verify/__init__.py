"""An artifact against its oracles: run in the emulator, every element compared, defects located.

Each run is made once for every completion mode of asynchronous transfers: a kernel that waits for
what it uses gives the same bits in all of them. What is specific to a kind of problem (its inputs,
its oracles, what its sizes are called) comes from the `Kind` that is registered for its class.

    from mlagen.verify import verify
    report = verify(artifact, seq_len=512, data="realistic")
"""

from mlagen.verify import mla_reduce as mla_reduce  # registers MlaReduceConfig
from mlagen.verify import prefill as prefill  # registers MhaConfig and MlaConfig
from mlagen.verify.kinds import Kind, Trial, kind_of, register
from mlagen.verify.report import SCHEMA, ModeReport, VerifyReport
from mlagen.verify.run import MODES, Mode, verify, verify_inputs

__all__ = [
    "MODES",
    "SCHEMA",
    "Kind",
    "Mode",
    "ModeReport",
    "Trial",
    "VerifyReport",
    "kind_of",
    "register",
    "verify",
    "verify_inputs",
]
