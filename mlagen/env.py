"""The environment mlagen reads: its variables, and where it keeps what it built."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CLANG = "MLAGEN_CLANG"
LLD = "MLAGEN_LLD"
CACHE_DIR = "MLAGEN_CACHE_DIR"
ROCM_PATH = "ROCM_PATH"
PTXAS = "MLAGEN_PTXAS"
CUDA_HOME = "CUDA_HOME"
CUDA_PATH = "CUDA_PATH"
TUNING = "MLAGEN_TUNING"

VARIABLES = {
    CLANG: "the clang that assembles, before any other; set together with MLAGEN_LLD",
    LLD: "the ld.lld that links",
    ROCM_PATH: "the ROCm installation to look into instead of /opt/rocm",
    PTXAS: "the ptxas that assembles for NVIDIA targets, before any other",
    CUDA_HOME: "the CUDA installation to look into first, after the wheel nvidia-cuda-nvcc",
    CUDA_PATH: "the CUDA installation to look into next",
    TUNING: "the store of tuning results, instead of tuning.sqlite in the cache directory",
    CACHE_DIR: "where built kernels are kept instead of the platform's cache directory",
}


def cache_dir() -> Path:
    """The cache directory: $MLAGEN_CACHE_DIR, or the platform's own. It need not exist yet."""
    if chosen := os.environ.get(CACHE_DIR):
        return Path(chosen).expanduser()
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "mlagen" / "cache"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "mlagen"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "mlagen"


def artifacts_dir() -> Path:
    """The root of the artifact store."""
    return cache_dir() / "artifacts"


def tuning_store() -> Path:
    """The store of tuning results. It need not exist yet."""
    if chosen := os.environ.get(TUNING):
        return Path(chosen).expanduser()
    return cache_dir() / "tuning.sqlite"
