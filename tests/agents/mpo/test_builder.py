from minerva_acme import environments, experiments
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


def test_retrace_trains_on_what_reverb_stores(tmp_path):
    result = experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=mpo.MPOBuilder(SMALL),
            environment_factory=lambda seed: environments.make_training_environment("Pendulum-v1", seed=seed),
            directory=tmp_path,
            num_env_steps=100,
            evaluation_period=0,
            evaluation_episodes=1,
            tensorboard=False,
        )
    )
    assert (result.env_steps, result.learner_steps) == (100, mpo.MPOBuilder(SMALL).learner_steps_due(100 - 4))
