"""A run's folder: what it says of the run, its checkpoints, and the policies that it holds."""

from typing import TYPE_CHECKING

from minerva_acme import lazy

if TYPE_CHECKING:
    from minerva_acme.runs.evaluation import Evaluation, evaluate, evaluate_checkpoint
    from minerva_acme.runs.policies import export_policy, load_policy

__all__ = ["Evaluation", "evaluate", "evaluate_checkpoint", "export_policy", "load_policy"]

# Options and tasks need no torch; what does is imported when it is used.
__getattr__ = lazy.attach(__name__, __file__)
