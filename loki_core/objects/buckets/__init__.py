"""Objects and voxels: streams sampled, and surfaces found on them."""
