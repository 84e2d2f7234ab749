"""Operators: Actions that are neither Forces nor Constraints."""
