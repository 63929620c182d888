"""What kernels over a cache of latent rows share."""
