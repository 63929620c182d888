"""What kernels over latent rows share on Hopper and Blackwell."""
