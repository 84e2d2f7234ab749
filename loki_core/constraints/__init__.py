"""Constraints: Actions between two points or more, and what they share."""
