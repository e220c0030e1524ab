"""The ways to play: in one environment, in several at once, or in a batch of them in tensors.

Nothing else asks which kind an environment is: `of` returns what a run must know of it.
"""

import abc
import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from minerva_acme.environments.loop import EnvironmentLoop
from minerva_acme.environments.vector import VectorEnvironment
from minerva_acme.environments.vector_loop import VectorEnvironmentLoop

if TYPE_CHECKING:
    import torch


class Scene(abc.ABC):
    """What a run must know of the environment that it plays in.

    Attributes:
        environment: The environment, or several as a vector or a batch.
    """

    kind: ClassVar[str]
    """What it is called, for messages."""
    holds_several: ClassVar[bool] = True
    """Whether it stands for several environments."""
    has_timesteps: ClassVar[bool] = True
    """Whether single environments have timesteps, which observers and recordings need."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment

    @property
    def num_environments(self) -> int:
        """The number of environments."""
        return int(self.environment.num_environments)

    @property
    def device(self) -> "torch.device":
        """The device on which actions are chosen."""
        import torch

        return torch.device("cpu")

    @property
    def has_info(self) -> bool:
        """Whether it may give an `info` with its timesteps."""
        return True

    def placed(self, builder: Any) -> Any:
        """Returns a builder of the agent's parts for this way to play."""
        return builder

    @abc.abstractmethod
    def make_loop(self, actor: Any, **parts: Any) -> Any:
        """Makes the loop in which an actor plays."""

    @abc.abstractmethod
    def make_actor(self, builder: Any, policy: Any, source: Any = None, adders: Sequence[Any] = ()) -> Any:
        """Makes the actor of a policy, by a builder that is `placed`."""

    def make_adders(
        self, builder: Any, client: Any, spec: Any, make_adder: Callable[[], Any]
    ) -> list[contextlib.AbstractContextManager[Any]]:
        """Makes what the actor writes with: an adder for each environment, by `make_adder`."""
        return [make_adder() for _ in range(self.num_environments)]


class Single(Scene):
    """One environment."""

    kind = "environment"
    holds_several = False

    @property
    def num_environments(self) -> int:
        return 1

    @property
    def has_info(self) -> bool:
        return callable(getattr(self.environment, "get_info", None))

    def make_loop(self, actor: Any, **parts: Any) -> Any:
        return EnvironmentLoop(environment=self.environment, actor=actor, **parts)

    def make_actor(self, builder: Any, policy: Any, source: Any = None, adders: Sequence[Any] = ()) -> Any:
        return builder.make_actor(policy, source, *adders)


class Vector(Scene):
    """Several environments, whose timesteps come as lists."""

    kind = "vector"

    def make_loop(self, actor: Any, **parts: Any) -> Any:
        return VectorEnvironmentLoop(environment=self.environment, actor=actor, **parts)

    def make_actor(self, builder: Any, policy: Any, source: Any = None, adders: Sequence[Any] = ()) -> Any:
        return builder.make_vector_actor(policy, source, adders)


class Batched(Scene):
    """A batch of environments, whose steps are tensors on a device."""

    kind = "batch"
    has_timesteps = False

    @property
    def device(self) -> "torch.device":
        device: torch.device = self.environment.device
        return device

    def placed(self, builder: Any) -> Any:
        return builder.for_batches(self.device)

    def make_loop(self, actor: Any, **parts: Any) -> Any:
        from minerva_acme.environments.batched_loop import BatchedEnvironmentLoop

        return BatchedEnvironmentLoop(environment=self.environment, actor=actor, **parts)

    def make_actor(self, builder: Any, policy: Any, source: Any = None, adders: Sequence[Any] = ()) -> Any:
        return builder.make_batched_actor(policy, source, *adders)

    def make_adders(
        self, builder: Any, client: Any, spec: Any, make_adder: Callable[[], Any]
    ) -> list[contextlib.AbstractContextManager[Any]]:
        return [builder.make_batched_adder(client, spec)]


def of(environment: Any) -> Scene:
    """Returns the way to play in an environment; None stands for a single one that is made elsewhere."""
    if isinstance(environment, VectorEnvironment):
        return Vector(environment)
    # Without torch there can be no batch; importing it takes a second.
    batched = sys.modules.get("minerva_acme.environments.batched")
    if batched is not None and isinstance(environment, batched.BatchedEnvironment):
        return Batched(environment)
    return Single(environment)
