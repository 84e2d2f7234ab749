"""Linear solvers: one interface, on one rank or many."""
