"""What works beside the warps: barriers, mbarriers, copies, tensor copies."""
