"""Code that exists only for speed, behind one switch.

Every part has a plain twin and a test that holds the two equal, and logs once, at INFO, which way it takes.
"""

from minerva_acme.acceleration.acting import Acting, Choice
from minerva_acme.acceleration.adam import Adam, AdamW
from minerva_acme.acceleration.agreement import Agreement, Originals, hooks_of
from minerva_acme.acceleration.array_ppo import CLIPPING_EPSILON
from minerva_acme.acceleration.choice import Acceleration, Mode
from minerva_acme.acceleration.compiled import DifferentiatedLoss
from minerva_acme.acceleration.target_critic import TargetCritic

__all__ = [
    "Acceleration",
    "Acting",
    "Adam",
    "AdamW",
    "Agreement",
    "CLIPPING_EPSILON",
    "Choice",
    "DifferentiatedLoss",
    "Mode",
    "Originals",
    "TargetCritic",
    "hooks_of",
]
