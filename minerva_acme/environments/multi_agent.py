"""A check for environments with several agents, which this library's agents cannot play."""

from typing import Any


def check_is_of_one_agent(environment: Any) -> None:
    """Checks that an environment is not one of PettingZoo's, parallel or turn by turn (AEC).

    Raises:
        ValueError: It is one.
    """
    is_pettingzoo = any(
        kind.__module__.partition(".")[0] == "pettingzoo" for kind in type(environment).__mro__
    )
    if not is_pettingzoo and not hasattr(environment, "possible_agents"):
        return
    raise ValueError(
        f"`environment` must have one agent, got {type(environment).__name__} of PettingZoo, which has "
        "several. Write a Gymnasium environment around it: one agent's observation, action and reward, with "
        "the others played by your policies, or all agents as one, with a Dict of observations and of "
        "actions and the sum of rewards."
    )
