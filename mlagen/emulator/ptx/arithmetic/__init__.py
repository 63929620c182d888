"""The arithmetic of Hopper's tensor core and of its approximate functions, bit for bit.

Models in numpy, slow and plain. Faster code is held against them, and they against words that a
chip gave (`benchmarks/hopper_words.py`).
"""
