"""A braid swings from a support that moves."""
