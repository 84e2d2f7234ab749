"""The simulation pipeline: Stages, Tasks, schedule, timeline, and the Solver."""
