import builtins
import contextlib
import errno
import hashlib
import json
import logging
import os
import pathlib
import shutil
import zipfile

import pytest
import torch

from minerva_acme.runs import checkpointing


@pytest.fixture
def run(tmp_path):
    """The folder of a run."""
    return tmp_path / "run"


@pytest.fixture
def checkpointer(run):
    return checkpointing.Checkpointer(run / "checkpoints")


def names(checkpointer):
    return sorted(path.name for path in checkpointer.directory.iterdir())


def replay_of(run, value):
    """A replay store's files, as Reverb and memory give them: in a folder of their own."""
    folder = run / ".replay" / "stamp"
    folder.mkdir(parents=True)
    (folder / "chunks").write_text(f"rows {value}")
    (folder / "more").mkdir()
    (folder / "more" / "items").write_text("items")
    return folder


def save(run, steps, value=None, **options):
    checkpointer = checkpointing.Checkpointer(run / "checkpoints", **options)
    checkpointer.save(steps, {"value": value or steps}, replay_of(run, value or steps))


def load(run, which="latest"):
    """Finds a checkpoint as a run that resumes does; returns its step and what it holds."""
    checkpoint = checkpointing.find(run, which, with_replay=True)
    value = checkpointing.load_state(checkpoint)["value"]
    replay = checkpointing.replay_folder(checkpoint)
    assert (replay / "chunks").read_text() == f"rows {value}"
    assert (replay / "more" / "items").read_text() == "items"
    return checkpointing.env_steps(checkpoint), value


def reseal(checkpoint, **changes):
    """Writes another manifest, as another version or an attacker would."""
    path = checkpoint / "manifest.json"
    content = json.loads(path.read_text()) | changes
    del content["sha256"]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**content, "sha256": digest}))


def flip(path, count=64):
    content = bytearray(path.read_bytes())
    middle = max(0, len(content) // 2 - count // 2)
    content[middle : middle + count] = bytes(byte ^ 1 for byte in content[middle : middle + count])
    path.write_bytes(content)


def test_the_newest_checkpoints_are_kept(tmp_path):
    checkpointer = checkpointing.Checkpointer(tmp_path, keep=2)
    assert checkpointer.latest() is None
    for steps in (5, 10, 1_000_000):
        checkpointer.save(steps, {"steps": steps})
    assert names(checkpointer) == ["000000010", "001000000"]
    assert checkpointing.load_state(checkpointer.latest()) == {"steps": 1_000_000}


def test_names_are_numbers_beyond_a_billion_steps_too(checkpointer, run):
    for steps in (999_999_999, 1_000_000_000, 20_000_000_000):
        checkpointer.save(steps, {"value": steps})
    assert names(checkpointer) == ["1000000000", "20000000000"]
    assert checkpointing.find(run).name == "20000000000"


def test_a_checkpoint_that_was_cut_short_is_not_seen(tmp_path):
    checkpointing.Checkpointer(tmp_path).save(5, {"steps": 5})
    for left_over in (".unfinished-000000010", ".removed-000000001"):
        (tmp_path / left_over).mkdir()
        (tmp_path / left_over / "state.pt").write_bytes(b"half")
    checkpointer = checkpointing.Checkpointer(tmp_path)
    assert checkpointer.latest().name == "000000005"
    assert names(checkpointer) == ["000000005"]


def test_a_folder_that_merely_has_digits_for_a_name_is_no_checkpoint(checkpointer, run):
    (checkpointer.directory / "2024").mkdir()
    (checkpointer.directory / "2024" / "notes.txt").write_text("mine")
    assert checkpointer.latest() is None
    with pytest.raises(ValueError, match="holds no checkpoint yet"):
        checkpointing.find(run)
    for steps in (5, 2024, 2030):
        checkpointer.save(steps, {})
    assert names(checkpointer) == ["000002024-1", "000002030", "2024"]


def test_saving_the_same_step_again_takes_its_place(checkpointer, run):
    checkpointer.save(1, {"value": 0})
    for value in range(12):  # names sort by number, not by letter
        checkpointer.save(5, {"value": value})
    assert names(checkpointer) == ["000000001", "000000005-11"]
    assert checkpointing.load_state(checkpointing.find(run)) == {"value": 11}
    assert checkpointing.find(run, 5) == checkpointing.find(run) == checkpointing.find(run, "000000005")


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


def test_replay_files_on_another_disk_are_copied(run, monkeypatch):
    rename = os.rename

    def refuse(source, target, **folders):
        if ".replay" in str(source):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", refuse)
    save(run, 5)
    assert load(run) == (5, 5)
    assert not (run / ".replay" / "stamp").exists()


@pytest.mark.promise("No code in a checkpoint is executed")
def test_code_in_a_checkpoint_is_not_executed_and_nobody_is_advised_to(checkpointer):
    class Evil:
        def __reduce__(self):
            return (print, ("executed",))

    checkpointer.save(5, {"evil": Evil()})
    with pytest.raises(checkpointing.DamagedCheckpoint, match="No code in it was executed") as raised:
        checkpointing.load_state(checkpointer.latest())
    assert "weights_only" not in str(raised.value).lower()
    assert raised.value.__suppress_context__


def test_a_state_that_unpacks_to_more_than_itself_is_refused_before_it_is_unpacked(checkpointer, monkeypatch):
    checkpointer.save(5, {"zeros": torch.zeros(1_000_000)})
    path = checkpointer.latest() / "state.pt"
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(torch, "load", lambda *unused, **options: pytest.fail("it was unpacked"))
    with pytest.raises(checkpointing.DamagedCheckpoint, match=r"state\.pt must .*data.pkl' is compressed"):
        checkpointing.load_state(checkpointer.latest())


def test_a_state_that_is_no_dict_is_refused(checkpointer):
    checkpointer.save(5, [1, 2])
    with pytest.raises(checkpointing.DamagedCheckpoint, match="must hold a dict, got list"):
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
        OSError, match="cannot be written: No space left on device, .*resumes from its beginning"
    ):
        checkpointer.save(10, Full())
    assert not list(tmp_path.iterdir())
    checkpointer.save(10, {"a": 1})
    assert checkpointing.load_state(checkpointing.find(tmp_path / "000000010")) == {"a": 1}


def test_an_old_checkpoint_that_cannot_be_removed_is_said_and_ends_nothing(run, monkeypatch, caplog):
    save(run, 5)
    checkpointer = checkpointing.Checkpointer(run / "checkpoints", keep=1)

    def refuse(path, *unused, **options):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "rmdir", refuse)
    checkpointer.save(10, {})
    assert "000000005 cannot be removed: Permission denied" in caplog.text
    assert checkpointing.find(run).name == "000000010"


def test_of_a_link_the_link_is_removed_and_not_what_it_leads_to(tmp_path, caplog):
    theirs = tmp_path / "theirs"
    checkpointing.Checkpointer(theirs).save(5, {})
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    for name in (".unfinished-000000010", ".removed-000000010", "000000005"):
        (directory / name).symlink_to(theirs / "000000005")
    checkpointer = checkpointing.Checkpointer(directory, keep=1)
    checkpointer.save(20, {})
    assert names(checkpointer) == ["000000020"]
    assert checkpointing.find(theirs / "000000005")
    assert not caplog.records


@pytest.mark.promise("A full disk is a one-line error that names the checkpoint to resume")
def test_a_disk_that_is_full_leaves_no_half_checkpoint_and_names_the_good_one(
    checkpointer, run, capfd, disk_that_ends_at
):
    checkpointer.save(5, {"value": 5})
    with (
        disk_that_ends_at(5000),
        pytest.raises(OSError, match=r"000000010 cannot be written: .* free there.* resumes from step 5\."),
    ):
        checkpointer.save(10, {"value": torch.zeros(5000)}, replay_of(run, 10))
    assert names(checkpointer) == ["000000005"]
    assert capfd.readouterr() == ("", "")
    checkpointer.save(10, {"value": 10})
    assert checkpointing.find(run).name == "000000010"


# Damage.

DAMAGES = {
    "64 bytes of state.pt": lambda folder: flip(folder / "state.pt"),
    "an empty state.pt": lambda folder: (folder / "state.pt").write_bytes(b""),
    "no state.pt": lambda folder: (folder / "state.pt").unlink(),
    "one byte of the replay": lambda folder: flip(folder / "replay" / "chunks", 1),
    "an empty file in the replay": lambda folder: (folder / "replay" / "more" / "items").write_bytes(b""),
    "an empty replay": lambda folder: [
        path.rename(folder / path.name) for path in (folder / "replay").iterdir()
    ],
    "no replay": lambda folder: (folder / "replay").rename(folder / "elsewhere"),
    "one byte of the manifest": lambda folder: flip(folder / "manifest.json", 1),
    "another number in the manifest": lambda folder: (folder / "manifest.json").write_text(
        (folder / "manifest.json").read_text().replace('"evaluation": null', '"evaluation": 1e9')
    ),
    "half a manifest": lambda folder: os.truncate(folder / "manifest.json", 100),
    "a manifest of many brackets": lambda folder: (folder / "manifest.json").write_text("[" * 100_000),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
@pytest.mark.promise("A damaged checkpoint is passed over")
def test_instead_of_a_damaged_checkpoint_the_one_before_it_is_used_which_is_said(run, caplog, damage):
    save(run, 10)
    save(run, 25)
    damage(run / "checkpoints" / "000000025")
    assert load(run) == (10, 10)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"{run / 'checkpoints' / '000000025'}/" in record.getMessage()  # which file
    assert "The checkpoint of step 10 is used instead: 15 environment steps are lost." in record.getMessage()


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_without_a_good_checkpoint_there_is_an_error_and_no_new_beginning(run, damage):
    for steps in (10, 25):
        save(run, steps)
        damage(run / "checkpoints" / f"{steps:09d}")
    with pytest.raises(checkpointing.DamagedCheckpoint, match="No other checkpoint is left in") as raised:
        checkpointing.find_to_resume(run)
    assert "000000010/" in str(raised.value) and "000000025/" in str(raised.value)
    assert "Errno" not in str(raised.value)


def test_the_run_goes_on_after_the_checkpoint_that_was_used_instead(run):
    for steps in (10, 25):
        save(run, steps)
    flip(run / "checkpoints" / "000000025" / "state.pt")
    save(run, 20)
    assert names(checkpointing.Checkpointer(run / "checkpoints")) == ["000000010", "000000020"]


def test_a_policy_is_found_where_the_replay_alone_is_damaged(run, caplog):
    save(run, 10)
    flip(run / "checkpoints" / "000000010" / "replay" / "chunks")
    assert checkpointing.find(run).name == "000000010"
    assert not caplog.records
    with pytest.raises(checkpointing.DamagedCheckpoint, match="chunks is damaged"):
        checkpointing.find(run, with_replay=True)


def test_a_file_that_cannot_be_read_is_damaged_in_words(run):
    save(run, 10)
    path = run / "checkpoints" / "000000010" / "state.pt"
    path.unlink()
    path.mkdir()
    with pytest.raises(checkpointing.DamagedCheckpoint, match=r"state.pt cannot be read: Is a directory\."):
        checkpointing.find(run)


def test_a_newer_format_is_refused_and_not_passed_over(run):
    for steps in (10, 25):
        save(run, steps)
    reseal(run / "checkpoints" / "000000025", format=2)
    with pytest.raises(ValueError, match="000000025 must have format 1, got 2. Use the version of minerva"):
        checkpointing.find_to_resume(run)
    assert load(run, 10) == (10, 10)


@pytest.mark.parametrize(
    "changes",
    [
        *({"files": [1]}, {"files": {"state.pt": 3}}, {"evaluation": "x"}, {"env_steps": None}),
        *({"evaluation": float("inf")}, {"evaluation": float("nan")}, {"evaluation": 10**400}),
        *({"env_steps": float("inf")}, {"env_steps": -1}, {"env_steps": 10**400}),
        {"files": {"state.pt": {"bytes": -1, "sha256": ""}}},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_a_manifest_that_somebody_made_up_is_damaged(run, changes):
    save(run, 10)
    reseal(run / "checkpoints" / "000000010", **changes)
    with pytest.raises(checkpointing.DamagedCheckpoint, match="manifest.json is damaged"):
        checkpointing.find_to_resume(run)


# Which.


@pytest.fixture
def evaluated(checkpointer):
    """Checkpoints of steps 10 to 50; the best evaluation was at 20, where only its weights were saved."""
    checkpointer.save(10, {"value": 10}, evaluation=1.0)
    checkpointer.save(15, {"value": 15}, evaluation=2.0, light=True)
    checkpointer.save(20, {"value": 20}, evaluation=5.0, light=True)
    for steps in (30, 40, 50):
        checkpointer.save(steps, {"value": steps}, evaluation=5.0)
    return checkpointer


def test_the_best_by_evaluation_is_kept_beside_the_newest(evaluated, run):
    assert names(evaluated) == ["000000020", "000000040", "000000050"]
    assert evaluated.is_best(5.1) and not evaluated.is_best(5.0) and not evaluated.is_best(None)
    steps = {
        which: checkpointing.env_steps(checkpointing.find(run, which))
        for which in ("latest", "first", "middle", "best", 40)
    }
    assert steps == {"latest": 50, "first": 20, "middle": 20, "best": 20, 40: 40}
    folder = run / "checkpoints" / "000000020"
    assert checkpointing.find(run, folder) == checkpointing.find(folder) == folder


def test_a_light_checkpoint_is_resumed_from_only_where_there_is_no_other(checkpointer, run):
    checkpointer.save(5, {}, evaluation=1.0, light=True)
    assert checkpointing.find_to_resume(run).name == "000000005"
    checkpointer.save(10, {})
    checkpointer.save(15, {}, evaluation=2.0, light=True)
    assert checkpointing.find_to_resume(run).name == "000000010"
    assert names(checkpointer) == ["000000010", "000000015"]
    assert [checkpointing.is_light(checkpointing.find(run, steps)) for steps in (10, 15)] == [False, True]


def test_the_best_is_not_kept_where_nobody_asks_for_it(run):
    checkpointer = checkpointing.Checkpointer(run / "checkpoints", keep=1, keep_best=False)
    checkpointer.save(5, {}, evaluation=2.0)
    checkpointer.save(6, {}, evaluation=1.0)
    assert names(checkpointer) == ["000000006"]


def test_checkpoints_of_steps_that_are_made_again_go_with_the_next_one(evaluated, run):
    # Resumed from 20: light ones of better weights leave the others alone.
    evaluated.save(25, {}, evaluation=6.0, light=True)
    assert names(evaluated) == ["000000025", "000000040", "000000050"]
    evaluated.save(30, {}, evaluation=3.0)
    assert names(evaluated) == ["000000025", "000000030"]


@pytest.mark.parametrize("which", ["60", "bset", "runs/nowhere"])
def test_a_checkpoint_that_is_not_there_is_told_with_those_that_are(evaluated, run, which):
    expected = (
        "`checkpoint` must be latest, 20, 40, 50, best, first, middle or the folder of a checkpoint, got "
        f"'{which}'"
    )
    with pytest.raises(ValueError, match=expected):
        checkpointing.find(run, which)


@pytest.mark.parametrize("which", [20, "best"])
def test_a_chosen_checkpoint_that_is_damaged_is_not_replaced_by_another(evaluated, run, which):
    flip(run / "checkpoints" / "000000020" / "state.pt")
    with pytest.raises(checkpointing.DamagedCheckpoint, match="000000020/state.pt is damaged: its"):
        checkpointing.find(run, which)


def test_a_new_run_has_none_unless_one_is_asked_for(run):
    assert checkpointing.find_to_resume(run) is None
    with pytest.raises(
        ValueError, match="`checkpoint` must be latest or the folder of a checkpoint, got 'best'"
    ):
        checkpointing.find_to_resume(run, "best")


def test_a_checkpoint_that_is_removed_while_it_is_read_is_not_called_damaged(run, monkeypatch, caplog):
    save(run, 10)
    scan = checkpointing._scan

    def scan_then_save(directory):
        found = scan(directory)
        monkeypatch.setattr(checkpointing, "_scan", scan)
        save(run, 20, keep=1)  # by the run
        return found

    monkeypatch.setattr(checkpointing, "_scan", scan_then_save)
    assert load(run) == (20, 20)
    assert not caplog.records


# Kills.


class Kills:
    """Copies a folder, once for each state, as a kill before any operation on files would leave it."""

    def __init__(self, run, copies):
        self.folders, self.num_operations = [], 0
        self._run, self._copies, self._seen, self._is_looking = run, copies, None, False

    @contextlib.contextmanager
    def watching(self, monkeypatch):
        with monkeypatch.context() as patch:
            for name in ("mkdir", "rename", "replace", "open", "unlink", "remove", "rmdir", "scandir"):
                patch.setattr(os, name, self._watched(getattr(os, name)))
            patch.setattr(os, "fsync", self._watched(lambda descriptor: None))  # which takes long
            patch.setattr(builtins, "open", self._watched(builtins.open))
            yield
            self.look()

    def look(self):
        """Copies the folder if it has changed; returns the place of its state among the copies."""
        self._is_looking = True
        found = {path: path.is_file() and path.read_bytes() for path in self._run.rglob("*")}
        if found != self._seen:
            self._seen = found
            self.folders.append(shutil.copytree(self._run, self._copies / str(len(self.folders))))
        self._is_looking = False
        return len(self.folders) - 1

    def _watched(self, function):
        def call(*args, **kwargs):
            if not self._is_looking:
                self.num_operations += 1
                self.look()
            return function(*args, **kwargs)

        return call


def prepare(run):
    for steps in (10, 20):
        save(run, steps, value=f"old {steps}")
    return replay_of(run, "new")


SAVES = {
    # In each something is written and something removed.
    "a save": (30, {}),
    "a save of the same step": (20, {}),
    "a save of the same step, of which there is one": (20, {"keep": 1}),
    "a save of an earlier step": (15, {}),
    "a save that keeps one": (30, {"keep": 1}),
}


@pytest.mark.parametrize(("steps", "options"), SAVES.values(), ids=list(SAVES))
@pytest.mark.promise("Whichever file operation a kill interrupts")
def test_a_kill_at_any_operation_leaves_the_last_good_checkpoint(tmp_path, run, monkeypatch, steps, options):
    replay = prepare(run)
    kills, found = Kills(run, tmp_path), []
    checkpointer = checkpointing.Checkpointer(run / "checkpoints", **options)
    with kills.watching(monkeypatch):
        checkpointer.save(steps, {"value": "new"}, replay)
    for copy in kills.folders:
        # Whoever looks at the folder as it is, and whoever starts the run again.
        for folder in (copy / "checkpoints").glob("0*"):
            assert checkpointing.find(folder, with_replay=True)  # or half of it would be called damaged
        found.append(load(copy))
        checkpointer = checkpointing.Checkpointer(copy / "checkpoints", **options)
        assert load(copy) == found[-1]
        assert not [name for name in names(checkpointer) if name.startswith(".")]
        checkpointer.save(40, {"value": 40})
        assert checkpointing.load_state(checkpointing.find(copy)) == {"value": 40}
    assert kills.num_operations > 25
    before, after = (20, "old 20"), (steps, "new")
    # One change from the old to the new one, after which it stays. The steps after an earlier one are made
    # again, so its checkpoint is the newest only when theirs are gone.
    num_before = found.count(before)
    assert 3 < num_before < len(found)
    assert found == [before] * num_before + [after] * (len(found) - num_before)


BRANCHES = {
    # The step that is resumed from, that of the first save, and what is done otherwise.
    "a save between the steps that are left behind": (10, 25, {}),
    "a save of the step that is resumed from": (20, 20, {"keep": 1}),
    "a save after all of them, of which the best stays": (10, 45, {"keep": 1, "evaluation": 9.0}),
}


@pytest.mark.parametrize(("start", "steps", "options"), BRANCHES.values(), ids=list(BRANCHES))
def test_a_kill_after_an_older_checkpoint_was_chosen_stays_on_that_branch(
    tmp_path, run, monkeypatch, start, steps, options
):
    options = dict(options)
    evaluation = options.pop("evaluation", None)
    for made in (10, 20, 30, 40):
        checkpointer = checkpointing.Checkpointer(run / "checkpoints", keep=4)
        value, mean = f"old {made}", evaluation if made == 30 else None
        checkpointer.save(made, {"value": value}, replay_of(run, value), evaluation=mean)
    replay = replay_of(run, "new")
    kills, found = Kills(run, tmp_path), []
    with kills.watching(monkeypatch):
        checkpointer = checkpointing.Checkpointer(run / "checkpoints", **options)
        checkpointing.continue_from(run / "checkpoints", checkpointing.find(run, start))
        noted = kills.look()  # from here on the run changes its logs
        checkpointer.save(steps, {"value": "new"}, replay)
    for index, copy in enumerate(kills.folders):
        for folder in (copy / "checkpoints").glob("0*"):
            assert checkpointing.find(folder, with_replay=True)
        found.append(load(copy))
        if found[-1][1] != "new":  # nothing is gone yet: the other branch can be returned to
            assert {load(copy, made)[1] for made in (20, 30, 40)} == {"old 20", "old 30", "old 40"}
        # The next run resumes without a choice, saves, and leaves nothing of the other branch but its best.
        checkpointer = checkpointing.Checkpointer(copy / "checkpoints", **options)
        checkpoint = checkpointing.find_to_resume(copy)
        checkpointing.continue_from(copy / "checkpoints", checkpoint)
        assert load(copy) == found[-1]
        assert not [name for name in names(checkpointer) if name.startswith(".")]
        if index >= noted:
            next_steps = found[-1][0] + 2
            checkpointer.save(next_steps, {"value": "next"})
            assert checkpointing.load_state(checkpointing.find(copy)) == {"value": "next"}
            values = {
                checkpointing.load_state(copy / "checkpoints" / name)["value"]
                for name in names(checkpointer)
                if name.startswith("0")
            }
            best = {"old 30"} if evaluation else set()
            line = {f"old {made}" for made in (10, 20) if made <= start}
            assert best < values <= best | line | {"new", "next"}
    assert kills.num_operations > 40
    before, chosen, after = (40, "old 40"), (start, f"old {start}"), (steps, "new")
    counts = [found.count(which) for which in (before, chosen, after)]
    assert found == [before] * counts[0] + [chosen] * counts[1] + [after] * counts[2]
    assert min(counts) > 0
    # The choice counts from the moment on at which the run begins to change anything, if not before.
    assert before not in found[noted:]


def test_what_was_left_behind_can_be_returned_to_until_the_run_has_saved(run, caplog):
    for steps in (10, 20, 30):
        save(run, steps, keep=3)
    checkpointing.continue_from(run / "checkpoints", checkpointing.find(run, 10))
    assert (
        "000000010 is not the newest checkpoint: the next save removes the later ones at steps 20, 30"
        in caplog.text
    )
    assert load(run) == (10, 10)
    checkpointing.continue_from(run / "checkpoints", checkpointing.find(run, 20))
    assert load(run) == (20, 20)
    checkpointing.continue_from(run / "checkpoints", checkpointing.find(run, 30))
    assert load(run) == (30, 30)
    save(run, 40, keep=3)
    assert names(checkpointing.Checkpointer(run / "checkpoints")) == ["000000020", "000000030", "000000040"]


def test_what_was_saved_meanwhile_is_left_where_one_returns_to_a_branch(run, monkeypatch):
    for steps in (10, 20, 30):
        save(run, steps, keep=3)
    checkpointing.continue_from(run / "checkpoints", checkpointing.find(run, 10))
    with monkeypatch.context() as patch:  # killed before it removed the others
        patch.setattr(checkpointing.Checkpointer, "_remove_old", lambda self, light: None)
        save(run, 25, keep=3)
    assert load(run) == (25, 25)
    checkpointing.continue_from(run / "checkpoints", checkpointing.find(run, 30))
    assert load(run) == (30, 30)
    flip(run / "checkpoints" / "000000030" / "state.pt")
    assert load(run) == (20, 20)  # and not 25, of which it was not made


def test_the_best_of_a_branch_that_was_left_is_kept_and_is_not_the_latest(checkpointer, run):
    checkpointer.save(10, {"value": 10})
    checkpointer.save(30, {"value": 30}, evaluation=5.0)
    checkpointing.continue_from(run / "checkpoints", checkpointing.find(run, 10))
    for steps in (20, 30, 40):
        checkpointer.save(steps, {"value": f"new {steps}"}, evaluation=1.0)
        assert checkpointing.load_state(checkpointing.find(run)) == {"value": f"new {steps}"}
        assert checkpointing.load_state(checkpointing.find(run, "best")) == {"value": 30}
    assert checkpointing.load_state(checkpointing.find(run, 30)) == {"value": "new 30"}
    checkpointer.save(50, {}, evaluation=6.0)
    assert names(checkpointer) == ["000000040", "000000050"]


def test_a_light_checkpoint_is_resumed_from_until_a_whole_one_is_saved(checkpointer, run):
    checkpointer.save(10, {})
    checkpointer.save(15, {}, evaluation=1.0, light=True)
    checkpointing.continue_from(run / "checkpoints", checkpointing.find(run, "best"))
    assert checkpointing.find_to_resume(run).name == "000000015"
    checkpointer.save(17, {}, evaluation=2.0, light=True)
    assert checkpointing.find_to_resume(run).name == "000000015"
    checkpointer.save(20, {})
    assert names(checkpointer) == ["000000010", "000000017", "000000020"]


def test_a_chosen_checkpoint_that_lies_elsewhere_leaves_the_later_ones_behind(run, tmp_path):
    for steps in (10, 20, 30):
        save(run, steps, keep=3)
    elsewhere = tmp_path / "elsewhere" / "000000020"
    shutil.copytree(run / "checkpoints" / "000000020", elsewhere)
    checkpointing.continue_from(run / "checkpoints", checkpointing.find_to_resume(run, elsewhere))
    assert load(run) == (20, 20)
    save(run, 25, keep=3)
    assert names(checkpointing.Checkpointer(run / "checkpoints")) == ["000000010", "000000020", "000000025"]


def test_where_only_what_was_left_behind_is_there_the_run_does_not_begin_again(run):
    for steps in (10, 20):
        save(run, steps)
    checkpointing.continue_from(run / "checkpoints", checkpointing.find(run, 10))
    shutil.rmtree(run / "checkpoints" / "000000010")
    with pytest.raises(checkpointing.DamagedCheckpoint, match=r"left behind at the steps \[20\]"):
        checkpointing.find_to_resume(run)
    assert load(run, 20) == (20, 20)


def test_everything_is_on_the_disk_before_a_checkpoint_counts(run, monkeypatch):
    replay, synced, renamed = prepare(run), [], []
    checkpointer = checkpointing.Checkpointer(run / "checkpoints")
    fsync, rename = os.fsync, os.rename

    def note(descriptor):
        synced.append(pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def note_rename(source, target, **folders):
        renamed.append((pathlib.Path(target).name, len(synced)))
        rename(source, target, **folders)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "rename", note_rename)
    checkpointer.save(30, {}, replay)
    num_before = dict(renamed)["000000030"]
    unfinished = run / "checkpoints" / ".unfinished-000000030"
    content = {*(run / "checkpoints" / "000000030").rglob("*")}
    expected = {unfinished / path.relative_to(run / "checkpoints" / "000000030") for path in content}
    assert len(expected) == 6
    assert {*synced[:num_before]} == expected | {unfinished}
    assert synced[num_before - 2 : num_before] == [unfinished / "manifest.json", unfinished]  # in the end
    assert synced[num_before] == run / "checkpoints"


def test_a_part_that_was_lost_continues_from_what_this_session_has(run, tmp_path):
    other = tmp_path / "other"
    save(other, 1_000)
    began_with = checkpointing.find(other)
    for own in ((), (500,), (1_500,)):
        for step in own:
            save(run, step)
        known = checkpointing.marks(run / "checkpoints")
        checkpointing.continue_from(run / "checkpoints", began_with)
        assert checkpointing.find_to_restart(run, began_with, known) == began_with
        assert checkpointing.find_to_restart(run, None, known) is None
    light = checkpointing.Checkpointer(run / "checkpoints", keep_best=True)
    light.save(1_050, {"value": 7}, evaluation=1.0, light=True)
    assert checkpointing.find_to_restart(run, began_with, known) == began_with
    assert checkpointing.find_to_restart(run, None, known).name.endswith("1050")
    save(run, 1_100)
    assert checkpointing.find_to_restart(run, began_with, known).name.endswith("1100")


def test_a_name_that_is_used_again_after_a_removal_is_another_checkpoint(run):
    for step in (1_000, 2_000):
        save(run, step, keep=1)
    known, began_with = checkpointing.marks(run / "checkpoints"), checkpointing.find(run)
    shutil.rmtree(began_with)
    save(run, 2_000, value=7)
    assert checkpointing.find_to_restart(run, None, known).name == began_with.name


def test_a_part_without_replay_continues_from_a_checkpoint_whose_replay_is_damaged(run):
    for step in (1_000, 2_000):
        save(run, step)
    newest = checkpointing.find(run)
    (checkpointing.replay_folder(newest) / "chunks").write_text("damaged")
    assert checkpointing.find_to_restart(run, None, ()) == newest
    assert checkpointing.find_to_restart(run, None, (), with_replay=True).name.endswith("1000")
