"""A dam break in SPlisHSPlasH: a cube of water of 1 m in a corner of a tank of 3 x 2 x 1 m.

Walls are volume maps, the library's default; viscosity, tolerances and the CFL condition are those
of its DoubleDamBreak scene. This file runs in the Python that has pysplishsplash; it needs nothing
of Loki.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

METHODS = {"PBF": 2, "DFSPH": 4}  # the library's numbers
VOLUME_MAPS = 2
FIXED, CFL = 0, 1
REST_DENSITY = 1000.0  # kg/m^3
CUBE = """v -0.5 -0.5 -0.5
v 0.5 -0.5 -0.5
v 0.5 0.5 -0.5
v -0.5 0.5 -0.5
v -0.5 -0.5 0.5
v 0.5 -0.5 0.5
v 0.5 0.5 0.5
v -0.5 0.5 0.5
f 1 3 2
f 1 4 3
f 5 6 7
f 5 7 8
f 1 2 6
f 1 6 5
f 4 8 7
f 4 7 3
f 1 5 8
f 1 8 4
f 2 3 7
f 2 7 6
"""

Case = dict[str, Any]


def measure(case: Case) -> dict[str, Any]:
    """Run a case and return its figures, those of `PeerFigures`."""
    library = load_library()
    memory = memory_in_bytes("VmRSS")
    with tempfile.TemporaryDirectory(prefix="splishsplash_") as folder:
        Path(folder, "cube.obj").write_text(CUBE)
        scene_file = Path(folder, "scene.json")
        scene_file.write_text(json.dumps(scene_of(case)))
        simulator = library.Exec.SimulatorBase()
        simulator.init(
            sceneFile=str(scene_file),
            useCache=False,
            useGui=False,
            initialPause=False,
            stopAt=1000.0,
            outputDir=str(Path(folder, "out")),
        )
        simulator.initSimulation()
        watch = Watch(case, library, simulator)
        simulator.setTimeStepCB(watch.after_step)
        simulator.runSimulation()
    peak = memory_in_bytes("VmHWM")
    return watch.figures() | {"bytes_per_particle": (peak - memory) / watch.particles}


def load_library() -> Any:
    """Import pysplishsplash.

    Its wheel ships half of libglvnd, and crashes on import unless the system's is there first.

    Raises:
        RuntimeError: The system has no libGL.
    """
    try:
        ctypes.CDLL("libGL.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise RuntimeError(f"pysplishsplash needs libGL (Debian: libgl1): {error}") from error
    import pysplishsplash

    return pysplishsplash


def memory_in_bytes(name: str) -> int:
    """Return a line of this process's status: "VmRSS" is its memory now, "VmHWM" at its peak.

    The peak that `resource` tells would include what the parent had when it started this process.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {name}")


def scene_of(case: Case) -> dict[str, Any]:
    """Return the scene as the library reads it; the walls are a particle away from the tank's."""
    diameter = 1.0 / case["side"]
    time_step = case["time_step"]
    return {
        "Configuration": {
            "particleRadius": diameter / 2,
            "simulationMethod": METHODS[case["method"]],
            "gravitation": [0, -9.81, 0],
            "timeStepSize": time_step or 0.001,
            "cflMethod": FIXED if time_step else CFL,
            "cflFactor": 1,
            "cflMaxTimeStepSize": 0.005,
            "boundaryHandlingMethod": VOLUME_MAPS,
            "enableZSort": True,
            "DFSPH": {
                "minIterations": 2,
                "maxIterations": 100,
                "maxError": 0.05,
                "maxIterationsV": 100,
                "maxErrorV": 0.1,
                "enableDivergenceSolver": True,
            },
            "PBF": {
                "minIterations": 5,
                "maxIterations": 5,
                "maxError": 0.1,
                "velocityUpdateMethod": 0,
            },
        },
        "Materials": [
            {
                "id": "Fluid",
                "density0": REST_DENSITY,
                "viscosityMethod": 1,
                "Standard viscosity": {"viscosity": 0.01},
            }
        ],
        "RigidBodies": [
            {
                "geometryFile": "cube.obj",
                "translation": [1.5, 1.0, 0.5],
                "rotationAxis": [1, 0, 0],
                "rotationAngle": 0,
                "scale": [3.0 + 2 * diameter, 2.0 + 2 * diameter, 1.0 + 2 * diameter],
                "isDynamic": False,
                "isWall": True,
                "mapInvert": True,
                "mapThickness": 0.0,
                "mapResolution": case["map_resolution"],
            }
        ],
        "FluidBlocks": [{"denseMode": 0, "start": [0, 0, 0], "end": [1, 1, 1]}],
    }


class Watch:
    """What the library calls after each step: a clock, which stands while figures are read."""

    def __init__(self, case: Case, library: Any, simulator: Any) -> None:
        self.simulator = simulator
        self.simulation = library.Simulation.getCurrent()
        self.time_manager = library.TimeManager.getCurrent()
        self.solver = self.simulation.getTimeStep()
        self.water = self.simulation.getFluidModel(0)
        self.particles = int(self.water.numActiveParticles())
        self.warm_up, self.steps = case["warm_up"], case["steps"]
        self.done = 0
        self.seconds = self.cpu_seconds = 0.0
        self.began = self.resumed = self.cpu_resumed = 0.0
        self.iterations: list[int] = []
        self.divergence_iterations: list[int] = []
        self.density_errors: list[float] = []
        kind = {"PBF": library.TimeStepPBF, "DFSPH": library.TimeStepDFSPH}[case["method"]]
        assert type(self.solver) is kind, f"the library chose {type(self.solver)}"

    def after_step(self) -> None:
        """Take the step's figures; stop the simulation after the last one."""
        now, cpu_now = time.perf_counter(), time.process_time()
        self.done += 1
        if self.done == self.warm_up:
            self.began = self.time_manager.getTime()
        if self.done > self.warm_up:
            self.seconds += now - self.resumed
            self.cpu_seconds += cpu_now - self.cpu_resumed
            self.read_solver()
        if self.done == self.warm_up + self.steps:
            self.simulator.setValueFloat(self.simulator.STOP_AT, 1e-9)
        self.resumed, self.cpu_resumed = time.perf_counter(), time.process_time()

    def read_solver(self) -> None:
        """Note the iterations and the density error of the step that was just made."""
        solver = self.solver
        self.iterations.append(solver.getValueUInt(solver.SOLVER_ITERATIONS))
        if hasattr(solver, "SOLVER_ITERATIONS_V"):
            self.divergence_iterations.append(solver.getValueUInt(solver.SOLVER_ITERATIONS_V))
        # the buffer has room for more; parts, because copies would show in the peak of memory
        density = np.asarray(self.water.getFieldBuffer("density"))[: self.particles]
        excess = [
            np.maximum(part / REST_DENSITY - 1.0, 0.0).sum(dtype=np.float64)
            for part in np.array_split(density, 64)
        ]
        self.density_errors.append(100.0 * float(sum(excess)) / self.particles)

    def figures(self) -> dict[str, Any]:
        """Return the means over the measured steps."""
        return {
            "seconds_per_step": self.seconds / self.steps,
            "cpu_seconds_per_step": self.cpu_seconds / self.steps,
            "particles": self.particles,
            "iterations": float(np.mean(self.iterations)),
            "divergence_iterations": float(np.mean(self.divergence_iterations or [0])),
            "density_error_percent": float(np.mean(self.density_errors)),
            "time_step": (self.time_manager.getTime() - self.began) / self.steps,
        }


if __name__ == "__main__":
    print("\nFIGURES " + json.dumps(measure(json.loads(sys.argv[1]))), flush=True)
