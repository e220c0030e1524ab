"""Files from somebody else, of every kind that a command reads; `make fuzz` tries more of them."""

import collections

import pytest

from . import _server, foreign

pytest.importorskip("h5py", reason="h5py is not installed: pip install 'minerva-acme[datasets]'")
pytest.importorskip("optuna", reason="optuna is not installed: pip install 'minerva-acme[optuna]'")

_COUNT = 60  # every file several times


@pytest.fixture(scope="module")
def server():
    server = _server.Server("foreign")
    yield server
    server.close()


@pytest.mark.timeout(1200)  # a minute where nothing else runs
@pytest.mark.promise("A stranger's file imports no module")
def test_sixty_files_of_somebody_else_run_no_code_and_write_nothing_outside(server):
    outcomes = collections.Counter(server.check(seed) for seed in range(_COUNT))
    # Otherwise the changes would not reach what they are to try.
    assert outcomes["ran"] >= 2 and outcomes["refused"] >= 20


def test_a_module_that_is_imported_would_be_noticed(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "outside").mkdir()
    foreign.place_module(tmp_path)
    words = f"train --config settings.toml --env {foreign.MODULE}:Evil-v0".split()
    (tmp_path / "here" / "settings.toml").write_text('agent = "ppo"')
    status, _ = _server.call(tmp_path / "printed", words, tmp_path / "here")
    assert status == 2
    assert (tmp_path / "outside" / "imported").exists()
