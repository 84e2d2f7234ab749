"""Loki core."""
