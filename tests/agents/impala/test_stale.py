"""With weights of k learner steps ago, in one process, the correction keeps what is learned."""

import collections

import numpy as np
import pytest
import torch
from torch.nn import functional

from minerva_acme import specs, types
from minerva_acme.agents import acting

S, A, T, E = 6, 4, 8, 16  # states, actions, steps of each of E environments
GAMMA = 0.9
SPEC = specs.EnvironmentSpec(
    specs.Array((S,), np.float32, name="observation"),
    specs.DiscreteArray(A, name="action"),
    specs.Array((), np.float32, name="reward"),
    specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
)
SETTINGS = {
    "num_environments": E,
    "rollout_steps": T * E,
    "discount": GAMMA,
    "learning_rate": 0.06,  # at which 8 learner steps change the policy much
    "anneal_learning_rate": False,
    "policy_layer_sizes": (16,),
    "value_layer_sizes": (16,),
    "scale_rewards": False,
    "normalize_observations": False,
    "entropy_coef": 0.0,
    "max_grad_norm": 10.0,
}
NUM_STEPS = 60


class Problem:
    """A random problem that never ends, in E copies."""

    def __init__(self, seed):
        self._generator = torch.Generator().manual_seed(seed)
        self._reward = torch.rand(S, A, generator=self._generator)
        self._following = (2.0 * torch.randn(S, A, S, generator=self._generator)).softmax(dim=-1)
        self._states = torch.randint(S, (E,), generator=self._generator)

    def score(self, network):
        """The exact value of a policy, 0 for the random one and 1 for the best."""
        with torch.no_grad():
            policy = network.policy(torch.eye(S)).logits.softmax(dim=-1)
        random, best = self._value(torch.full((S, A), 1.0 / A)), torch.zeros(S)
        for _ in range(200):
            best = (self._reward + GAMMA * self._following @ best).amax(dim=1)
        return float((self._value(policy) - random) / (best.mean() - random))

    def _value(self, policy):
        following = torch.einsum("sa,sat->st", policy, self._following)
        reward = (policy * self._reward).sum(dim=1)
        return torch.linalg.solve(torch.eye(S) - GAMMA * following, reward).mean()

    @torch.no_grad()
    def play(self, network):
        """The rollout of a network's policy."""
        steps = []
        for _ in range(T):
            state, observation = self._states, functional.one_hot(self._states, S).float()
            log_probs = network.policy(observation).logits.log_softmax(dim=-1)
            action = self._draw(log_probs.exp())
            self._states = self._draw(self._following[state, action])
            after = functional.one_hot(self._states, S).float()
            log_prob = log_probs.gather(1, action[:, None])[:, 0]
            steps.append((observation, action, self._reward[state, action], after, log_prob))
        observation, action, reward, after, log_prob = map(torch.stack, zip(*steps, strict=True))
        return types.Rollout(
            observation=observation,
            action=action,
            reward=reward,
            discount=torch.ones(T, E),
            next_observation=after,
            first=torch.zeros(T, E),
            last=torch.cat([torch.zeros(T - 1, E), torch.ones(1, E)]),
            return_so_far=torch.ones(T, E),
            extras=acting.BehaviourExtras(log_prob, action),
        )

    def _draw(self, probabilities):
        return torch.multinomial(probabilities, 1, generator=self._generator)[:, 0]


@pytest.fixture
def mean_score(impala_agent, make_learner):
    """Trains with weights of `lag` learner steps ago, and returns the mean score of four seeds."""

    def one(lag, corrected, seed):
        builder, problem = impala_agent.builder(**SETTINGS, asynchronous=corrected), Problem(seed)
        actor = builder.make_networks(SPEC, torch.Generator())
        weights = collections.deque(maxlen=lag + 1)

        def play():
            while True:
                weights.append({name: value.clone() for name, value in network.state_dict().items()})
                actor.load_state_dict(weights[0])
                yield problem.play(actor)

        learner, network, _ = make_learner(builder, SPEC, play(), seed)
        learner.run(num_steps=NUM_STEPS)
        return problem.score(network)

    return lambda lag, corrected: np.mean([one(lag, corrected, seed) for seed in range(4)])


@pytest.mark.learning
def test_eight_versions_old_the_correction_keeps_what_is_learned(mean_score):
    corrected = mean_score(8, True)
    assert corrected > mean_score(8, False) + 0.1
    assert corrected > mean_score(0, True) - 0.1


@pytest.mark.learning
def test_two_versions_old_little_is_lost(mean_score):
    assert mean_score(2, True) > 0.75
