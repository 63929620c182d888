"""Interfaces of other libraries over kernels of mlagen: what people already type."""
