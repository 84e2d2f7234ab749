"""A fountain over stone idols."""
