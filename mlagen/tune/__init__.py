"""Finding the best variant of a schedule: search, judging in processes of their own, a store.

from mlagen.tune import Request, open_store, tune
result = tune(Request("mine.py", {"num_heads": "1"}, target="gfx950"), open_store(None))
result.winner.knobs
"""

from mlagen.tune.session import TuneRequest, TuneResult, open_store, tune
from mlagen.tune.store import KeptTrial, Store, Study

__all__ = ["KeptTrial", "Store", "Study", "TuneRequest", "TuneResult", "open_store", "tune"]
