"""sm_90a (Hopper: NVIDIA H100, H200)."""
