"""Finding the best variant of a schedule: search, judging in processes of their own, a store.

from mlagen.tune import Request, open_store, tune
result = tune(Request("mha_prefill_v2", {"num_heads": "1", "num_kv_heads": "1"}), open_store(None))
result.winner.knobs
"""

from mlagen.tune.session import Request, Result, open_store, tune
from mlagen.tune.store import Store, Study, Trial

__all__ = ["Request", "Result", "Store", "Study", "Trial", "open_store", "tune"]
