"""A run's folder: its description, its checkpoints and its policies."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.runs.evaluation import Evaluation, evaluate, evaluate_checkpoint
    from minerva_acme.runs.policies import export_policy, load_policy

__all__ = ["Evaluation", "evaluate", "evaluate_checkpoint", "export_policy", "load_policy"]

# Options and tasks need no torch; the modules that do are imported when they are used.
__getattr__, __dir__ = lazy.attach(__name__, __file__)
