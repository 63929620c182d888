"""MHA and GQA prefill."""
