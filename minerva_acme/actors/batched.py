"""Actors of batched environments, in tensors."""

from minerva_acme import core, types
from minerva_acme.actors import feed_forward, variable_client


class BatchedFeedForwardActor(core.BatchedActor):
    """An actor for a batched environment, with a policy that sees only the current observations."""

    def __init__(
        self,
        *,
        policy: feed_forward.VectorPolicy,
        adder: core.BatchedAdder | None = None,
        variable_client: variable_client.VariableClient | None = None,
    ) -> None:
        """Initialises the actor.

        Args:
            policy: Chooses the actions, from tensors.
            adder: Writes the experience, including the policy's extras; None writes nothing.
            variable_client: Keeps the policy's weights up to date; None keeps them fixed.
        """
        self._policy = policy
        self._adder = adder
        self._variable_client = variable_client
        self._extras: types.NestedTensor = ()

    def select_action(self, observations: types.NestedTensor) -> types.NestedTensor:
        actions, self._extras = self._policy.batch(observations)
        return actions

    def observe_first(self, timestep: types.BatchedTimeStep) -> None:
        if self._adder is not None:
            self._adder.add_first(timestep)

    def observe(self, actions: types.NestedTensor, next_timestep: types.BatchedTimeStep) -> None:
        # Used once, as in FeedForwardActor.
        extras, self._extras = self._extras, ()
        if self._adder is not None:
            self._adder.add(actions, next_timestep, extras)

    def update(self, wait: bool = False) -> None:
        if self._variable_client is not None:
            self._variable_client.update(wait)
