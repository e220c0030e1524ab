from minerva_acme import environments
from minerva_acme.agents import mpo

SMALL = mpo.MPOConfig(
    policy_layer_sizes=(16,),
    critic_layer_sizes=(16,),
    batch_size=8,
    min_replay_size=20,
    samples_per_insert=2.0,
    num_samples=4,
    retrace_mc_actions=2,
)


def test_retrace_trains_on_what_reverb_stores(run):
    def make_environment(seed):
        return environments.make_training_environment("Pendulum-v1", seed=seed)

    result = run(mpo.MPOBuilder(SMALL), make_environment, 100, replay="auto")
    assert result.env_steps == 100
    assert result.learner_steps == mpo.MPOBuilder(SMALL).learner_steps_due(100 - 4)
