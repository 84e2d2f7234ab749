"""Ranks and what passes between them: the communicator, plans of exchange, reductions."""
