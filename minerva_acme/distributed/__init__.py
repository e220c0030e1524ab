"""Runs the same experiment in several processes, on one machine or many."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.distributed.graph import Context, Engine, Node, NodeSilence, Part, Program
    from minerva_acme.distributed.inline import InlineEngine
    from minerva_acme.distributed.jobs import RayJobs
    from minerva_acme.distributed.program import make_program
    from minerva_acme.distributed.ray_engine import RayEngine
    from minerva_acme.distributed.run import run_distributed_experiment
    from minerva_acme.distributed.supervisor import ProgramFailed

__all__ = [
    "Context",
    "Engine",
    "InlineEngine",
    "Node",
    "NodeSilence",
    "Part",
    "Program",
    "ProgramFailed",
    "RayEngine",
    "RayJobs",
    "make_program",
    "run_distributed_experiment",
]

# Each process loads only the modules that its node needs.
__getattr__, __dir__ = lazy.attach(__name__, __file__)
