"""Jets from water to toothpaste, side by side."""
