"""Spray that the wind sorts by size."""
