"""The simulation pipeline: Stages, Tasks, the schedule, the timeline, and the Solver that owns them."""
