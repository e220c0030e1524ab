"""A cluster of two machines, both on this one, by addresses of the loopback device."""

import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from minerva_acme import distributed, experiments
from minerva_acme.distributed import graph
from minerva_acme.runs import checkpointing
from tests.distributed import echo, small  # noqa: F401 -- so that Ray's workers find it, too

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]


@pytest.fixture
def cluster() -> Iterator[Any]:
    import ray
    from ray import cluster_utils

    settings = {"num_cpus": 3, "object_store_memory": 80_000_000, "include_dashboard": False}
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={**settings, "node_ip_address": "127.0.0.2"}
    )
    yield cluster, cluster.add_node(**settings, node_ip_address="127.0.0.3")
    ray.shutdown()
    cluster.shutdown()


def test_nodes_are_placed_on_both_machines_and_survive_the_loss_of_one(cluster: Any) -> None:
    from minerva_acme.distributed import ray_engine

    machines, second = cluster
    engine = ray_engine.RayEngine(machines.address)
    assert engine.connect(num_cpus=3) not in ("localhost", "127.0.0.1")
    nodes = tuple(
        graph.Node(name=name, factory="tests.distributed.echo:Echo", num_cpus=cpus, at_home=cpus == 0)
        for name, cpus in (("home", 0.0), ("a", 1.0), ("b", 1.0), ("c", 1.0))
    )
    launched = engine.launch(graph.Program(nodes=nodes))
    for node in nodes:
        launched.start(node.name, 0)
    places = wait_for_places(launched, 4)
    assert len(set(places.values())) == 2
    lost = {name for name, place in places.items() if place == second.node_id}
    assert lost and "home" not in lost and len(lost) < 3

    before = {name: launched.handle(name).call("about")["pid"] for name in places}
    machines.remove_node(second, allow_graceful=False)
    ended: set[str] = set()
    deadline = time.monotonic() + 120
    while ended < lost:
        assert time.monotonic() < deadline
        for name, _, died in launched.wait(0.5):
            assert died
            ended.add(name)
    assert ended == lost
    name = min(lost)  # for which the other machine has room
    launched.start(name, 1)
    while launched._where[name] == second.node_id:  # type: ignore[attr-defined]
        assert time.monotonic() < deadline
        launched.wait(0.5)
    about = launched.handle(name).call("about")
    assert about["incarnation"] == 1 and about["pid"] != before[name]
    assert launched.handle("home").call("ask", name) == about
    assert before["home"] == launched.handle("home").call("about")["pid"] != os.getpid()
    launched.close()
    engine.close()


@pytest.mark.reverb
def test_an_experiment_runs_in_a_cluster(cluster: Any, tmp_path: pathlib.Path) -> None:
    machines, _ = cluster
    seen: list[experiments.Progress] = []
    config = small.experiment(tmp_path, small.sac_builder(), num_env_steps=300)
    result = distributed.run_distributed_experiment(
        config, seen.append, num_actors=2, address=machines.address
    )
    assert result.env_steps >= 300 and result.learner_steps > 10 and result.after is not None
    assert {"actor/0", "actor/1"} <= seen[-1].nodes.keys()
    assert checkpointing.env_steps(checkpointing.find(tmp_path)) == result.env_steps


@pytest.mark.parametrize("address", ["127.0.0.9:1", "here"])
def test_an_address_where_no_cluster_is_is_refused_by_name(address: str) -> None:
    from minerva_acme.distributed import ray_engine

    with pytest.raises(ValueError, match=f"`address` must be the address of a Ray cluster, got '{address}'"):
        ray_engine.RayEngine(address)


def wait_for_places(launched: Any, number: int) -> dict[str, str]:
    """Looks after the program until it is known on which machine each of its nodes is."""
    deadline = time.monotonic() + 120
    while len(launched._where) < number:
        assert time.monotonic() < deadline
        assert launched.wait(0.5) == []
    return dict(launched._where)
