"""A dam breaks."""
