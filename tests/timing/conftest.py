import sys
from pathlib import Path

for _folder in ("binary", "emulator"):  # small kernels that tests there share
    sys.path.insert(0, str(Path(__file__).parent.parent / _folder))
