"""Cluster tables that several kernels have: each names its own problem and hands it on to them."""
