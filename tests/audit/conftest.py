"""What the audits' tests need of this machine."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "binary"))
