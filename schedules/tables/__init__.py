"""Tables that several kernels have: the parts they take are a kernel's own."""
