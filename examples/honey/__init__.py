"""Honey coils."""
