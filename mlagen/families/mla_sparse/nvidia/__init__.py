"""What sparse MLA's kernels share on Hopper and Blackwell."""
