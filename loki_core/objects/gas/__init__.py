"""Objects on staggered grids."""
