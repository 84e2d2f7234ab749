"""A glowing fountain that twists in a vortex of wind."""
