"""What `tuning_rates.py --rehearse` does in place of a build and a measurement: it takes time."""

from __future__ import annotations

import json
import os
import signal
import time
import zlib
from typing import Any

BUILD, MEASUREMENT = 2.0, 0.5  # seconds


def slept_build(job: Any) -> Any:
    """A build."""
    time.sleep(BUILD)
    return job


def slept_measurement(job: Any, prepared: Any) -> Any:
    """A measurement; about four knobs in a hundred end its process."""
    from mlagen.tune.values import TrialOutcome

    time.sleep(MEASUREMENT)
    lot = zlib.crc32(json.dumps(sorted(job.knobs.items())).encode()) % 100
    if lot < 4:
        os.kill(os.getpid(), signal.SIGSEGV)
    return TrialOutcome("passed", cost=1 + lot / 1000,
                        seconds={"build": BUILD, "cost": MEASUREMENT})  # fmt: skip


def device() -> dict[str, Any]:
    return {"name": "a rehearsal", "units": 1}
