"""Commands and sweeps on Ray, with real processes."""

import os
import pathlib
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from minerva_acme import distributed
from minerva_acme.cli import main
from minerva_acme.runs import checkpointing
from tests.distributed import killing

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]

_WAITS = "import os, sys, time; print(sys.argv[1], os.getpid(), flush=True); time.sleep(600)"
_SWEEP = (
    "sweep ppo --env CartPole-v1 --no-report --distributed ray --rollout-steps 16 --minibatch-size 4 "
    "--num-epochs 1 --num-envs 1 --policy-layer-sizes 4 --value-layer-sizes 4 --log csv --replay memory "
    "--evaluation-episodes 1 --evaluation-period 0"
)


@pytest.fixture
def places() -> Iterator[distributed.RayJobs]:
    with distributed.RayJobs(num_places=2) as places:
        yield places


def is_alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def lines(log: pathlib.Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def test_a_command_prints_to_its_log_and_its_status_is_known(
    places: distributed.RayJobs, tmp_path: pathlib.Path
) -> None:
    code = "import os, sys; print(os.getcwd(), *sys.argv[1:], flush=True); sys.exit(int(sys.argv[1]))"
    jobs = [places.start(code, (str(status), "a b"), tmp_path / str(status) / "log") for status in (0, 3)]
    assert [job.wait() for job in jobs] == [0, 3]
    assert (tmp_path / "3" / "log").read_text() == f"{os.getcwd()} 3 a b\n"
    assert jobs[0].poll() == 0


def test_a_signal_reaches_a_command_and_one_that_waits_gives_its_place_up(
    places: distributed.RayJobs, tmp_path: pathlib.Path
) -> None:
    logs = [tmp_path / name for name in "abc"]
    jobs = [places.start(_WAITS, (log.name,), log) for log in logs]
    killing.wait_until(lambda: sum(map(len, map(lines, logs))) == 2, 60.0)
    waiting = next(index for index, log in enumerate(logs) if not lines(log))
    assert all(job.poll() is None for job in jobs)
    for job in jobs:
        job.send_signal(signal.SIGINT)
    statuses = [job.wait() for job in jobs]
    assert statuses[waiting] == -signal.SIGINT and not logs[waiting].exists()
    assert all(status not in (0, None) for status in statuses)


def test_a_command_whose_worker_is_killed_ends_and_is_started_again(
    places: distributed.RayJobs, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log"
    job = places.start(_WAITS, ("run",), log)
    pids: list[int] = []
    for start in range(3):
        killing.wait_until(lambda start=start: job.poll() is None and len(lines(log)) > start, 60.0)  # type: ignore[misc]
        started = [int(line[1]) for line in lines(log) if line[0] == "run"]
        assert len(started) == start + 1
        pids.append(started[-1])
        parent = int(pathlib.Path(f"/proc/{pids[-1]}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        killing.wait_until(lambda: not is_alive(pids[-1]), 60.0)
        if start < 2:
            # What was interrupted may print why; only lines of starts are counted.
            kept = [line for line in log.read_text().splitlines() if line.startswith("run ")]
            log.write_text("".join(f"{line}\n" for line in kept))
    assert job.wait() == -signal.SIGKILL
    assert "The process was lost 3 times" in log.read_text()
    assert "the process on Ray is gone" in caplog.text


def test_a_folder_that_a_machine_does_not_have_is_told_in_the_log(
    places: distributed.RayJobs, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getcwd", lambda: str(tmp_path / "nowhere"))
    job = places.start("pass", (), tmp_path / "log")
    assert job.wait() == 1
    assert f"The folder {tmp_path / 'nowhere'} must exist on all machines" in (tmp_path / "log").read_text()


def test_a_sweep_on_ray_trains_all_and_does_again_what_failed(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*_SWEEP.split(), "--seeds", "0", "1", "--num-env-steps", "32", "--directory", str(tmp_path)]
    assert main([*words, "--jobs", "2"]) == 0
    out = capsys.readouterr().out
    assert "0 of them done, 2 at a time" in out and "2/2" in out
    runs = sorted(tmp_path.glob("*/CartPole-v1/seed*"))
    assert len(runs) == 2
    for run in runs:
        checkpoint = checkpointing.latest(run / "checkpoints")
        assert checkpoint is not None and checkpointing.env_steps(checkpoint) == 32
        assert "after 32 environment" in (run / "train.log").read_text()
    assert main(words) == 0 and "2 of them done" in capsys.readouterr().out


def test_ctrl_c_ends_a_sweep_on_ray_whose_run_saves(tmp_path: pathlib.Path) -> None:
    mark = uuid.uuid4().hex
    words = [*_SWEEP.split(), "--num-env-steps", "10000000", "--jobs", "1", "--directory", str(tmp_path)]
    code = "import sys; from minerva_acme.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,  # the signal reaches it alone
        env={**os.environ, killing.MARK: mark},
    )
    try:
        killing.wait_until(lambda: any(path.stat().st_size for path in tmp_path.rglob("actor.csv")), 120)
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0 and "Stopped by SIGINT; 0 of 1 runs are done." in out
    (run,) = tmp_path.glob("*/CartPole-v1/seed0")
    assert checkpointing.latest(run / "checkpoints") is not None
    killing.wait_until(lambda: not killing.processes(mark), 90)


def test_a_sweep_on_a_cluster_is_on_both_machines(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import ray
    from ray import cluster_utils

    settings = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}
    machines = cluster_utils.Cluster(
        initialize_head=True, head_node_args={**settings, "node_ip_address": "127.0.0.2"}
    )
    try:
        machines.add_node(**settings, node_ip_address="127.0.0.3")
        with distributed.RayJobs(machines.address) as places:
            assert places.num_places == 2
            code = "import os, time; print(os.environ['RAY_RAYLET_PID'], flush=True); time.sleep(2)"
            jobs = [places.start(code, (), tmp_path / name) for name in "ab"]
            assert [job.wait() for job in jobs] == [0, 0]
            assert len({(tmp_path / name).read_text() for name in "ab"}) == 2
        words = [*_SWEEP.split(), "--seeds", "0", "1", "2", "--num-env-steps", "32"]
        assert main([*words, "--address", machines.address, "--directory", str(tmp_path / "sweep")]) == 0
        assert "0 of them done, 2 at a time" in capsys.readouterr().out
        assert len(list((tmp_path / "sweep").glob("*/CartPole-v1/seed*/train.log"))) == 3
    finally:
        ray.shutdown()
        machines.shutdown()
