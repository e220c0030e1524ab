"""Actors: they choose actions, pass experience to an adder, and follow a learner's weights."""

from minerva_acme.actors.batched import BatchedFeedForwardActor
from minerva_acme.actors.feed_forward import (
    FeedForwardActor,
    FeedForwardVectorActor,
    Policy,
    PolicyOutput,
    VectorPolicy,
)
from minerva_acme.actors.random import RandomActor
from minerva_acme.actors.recurrent import RecurrentActor, RecurrentPolicy, RecurrentVectorActor
from minerva_acme.actors.variable_client import VariableClient

__all__ = [
    "BatchedFeedForwardActor",
    "FeedForwardActor",
    "FeedForwardVectorActor",
    "Policy",
    "PolicyOutput",
    "RandomActor",
    "RecurrentActor",
    "RecurrentPolicy",
    "RecurrentVectorActor",
    "VariableClient",
    "VectorPolicy",
]
