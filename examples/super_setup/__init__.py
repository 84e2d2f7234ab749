"""One Solver Setup for many scenes: what has no input stays out of the way."""
