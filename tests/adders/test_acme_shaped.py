from minerva_acme import core, experiments
from minerva_acme.adders import acme_shaped
from minerva_acme.agents import sac
from tests.distributed import small


class Acmes:
    """An adder with the three methods that Acme's have, writing by one of ours."""

    def __init__(self, adder):
        self.inner = adder
        self.num_resets = 0

    def add_first(self, timestep):
        self.inner.add_first(timestep)

    def add(self, action, next_timestep, extras=()):
        self.inner.add(action, next_timestep, extras)

    def reset(self):
        self.num_resets += 1
        self.inner.reset()


class Counting(Acmes):
    num_inserted = 7
    closed = False

    def close(self):
        self.closed = True

    def save(self):
        return {"held": 1}


def test_an_adder_of_ours_stays_as_it_is():
    class Own(core.Adder):
        num_inserted = 0
        add_first = add = flush = reset = close = lambda *_: None

    own = Own()
    assert acme_shaped.complete(own) is own


def test_what_an_adder_has_of_its_own_is_used():
    inner = Counting(None)
    with acme_shaped.complete(inner) as adder:
        assert adder.num_inserted == 7
        assert core.save_if_saveable(adder) == {"held": 1}
        adder.flush()
    assert inner.closed


def test_an_adder_without_them_has_no_state_and_nothing_to_close():
    with acme_shaped.complete(Acmes(None)) as adder:
        assert core.save_if_saveable(adder) is None
        assert adder.num_inserted == 0


def test_a_run_with_an_adder_of_acmes_three_methods_learns_what_one_with_ours_does(tmp_path):
    class Builder(sac.SACBuilder):
        def make_adder(self, client, spec):
            return Acmes(super().make_adder(client, spec))

    learned = []
    for kind in (Builder, sac.SACBuilder):
        builder = kind(small.sac_builder(min_replay_size=20).config)
        config = small.experiment(
            tmp_path / kind.__name__,
            builder,
            replay="memory",
            num_env_steps=60,
            evaluation_period=0,
            checkpoint_period=0,
        )
        learned.append(experiments.run_experiment(config))
    assert learned[0].learner_steps == learned[1].learner_steps > 0
    assert learned[0].after == learned[1].after
