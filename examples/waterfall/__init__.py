"""A waterfall in the wind."""
