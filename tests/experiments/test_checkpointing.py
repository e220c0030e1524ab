import pytest
import torch

from minerva_acme.experiments import checkpointing


def test_the_newest_checkpoints_are_kept(tmp_path):
    checkpointer = checkpointing.Checkpointer(tmp_path, keep=2)
    assert checkpointer.latest() is None
    for steps in (5, 10, 1_000_000):
        checkpointer.save(steps, {"steps": steps})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000010", "001000000"]
    assert checkpointing.load_state(checkpointer.latest()) == {"steps": 1_000_000}


def test_a_checkpoint_that_was_cut_short_is_not_seen(tmp_path):
    checkpointing.Checkpointer(tmp_path).save(5, {"steps": 5})
    (tmp_path / ".unfinished-000000010").mkdir()
    (tmp_path / ".unfinished-000000010" / "state.pt").write_bytes(b"half")
    checkpointer = checkpointing.Checkpointer(tmp_path)
    assert checkpointer.latest().name == "000000005"
    assert [path.name for path in tmp_path.iterdir()] == ["000000005"]


def test_saving_the_same_step_again_replaces_it(tmp_path):
    checkpointer = checkpointing.Checkpointer(tmp_path)
    checkpointer.save(5, {"value": 1})
    checkpointer.save(5, {"value": 2})
    assert checkpointing.load_state(checkpointer.latest()) == {"value": 2}


def test_replay_files_move_into_the_checkpoint(tmp_path):
    source = tmp_path / "replay" / "stamp"
    source.mkdir(parents=True)
    (source / "chunks").write_text("rows")
    checkpointer = checkpointing.Checkpointer(tmp_path / "checkpoints")
    checkpointer.save(5, {}, source)
    folder = checkpointing.replay_folder(checkpointer.latest())
    assert (folder / "chunks").read_text() == "rows"
    assert not source.exists()
    checkpointer.save(6, {})
    assert checkpointing.replay_folder(checkpointer.latest()) is None


def test_code_in_a_checkpoint_is_not_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("executed",))

    checkpointer = checkpointing.Checkpointer(tmp_path)
    checkpointer.save(5, {"evil": Evil()})
    with pytest.raises(Exception, match="weights_only|Weights only"):
        checkpointing.load_state(checkpointer.latest())


def test_a_full_state_comes_back_equal(tmp_path):
    state = {
        "tensor": torch.arange(3.0),
        "numbers": [1, 2.5, None, True],
        "nest": {"name": "x", "big": 2**80},
    }
    checkpointer = checkpointing.Checkpointer(tmp_path)
    checkpointer.save(1, state)
    loaded = checkpointing.load_state(checkpointer.latest())
    assert torch.equal(loaded.pop("tensor"), state.pop("tensor"))
    assert loaded == state


def test_nothing_kept_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`keep` must be >= 1 checkpoint, got 0."):
        checkpointing.Checkpointer(tmp_path, keep=0)


def test_a_save_that_failed_leaves_nothing_behind_and_can_be_made_again(tmp_path):
    checkpointer = checkpointing.Checkpointer(tmp_path)

    class Full:
        def __reduce__(self):
            raise OSError(28, "No space left on device")

    with pytest.raises(
        OSError, match="could not be written: No space left on device.*resumes from its beginning"
    ):
        checkpointer.save(10, Full())
    assert not list(tmp_path.iterdir())
    checkpointer.save(10, {"a": 1})
    assert checkpointing.load_state(checkpointing.find(tmp_path / "000000010")) == {"a": 1}
