"""A ball swings through rising smoke."""
