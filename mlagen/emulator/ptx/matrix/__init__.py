"""The tensor core: wgmma and mma.sync."""
