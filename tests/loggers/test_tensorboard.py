import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from minerva_acme import loggers


def events(folder):
    """Every event of a run, read with its checksums, and without TensorFlow."""
    from tensorboard.compat.proto import event_pb2
    from tensorboard.compat.tensorflow_stub import pywrap_tensorflow

    for path in sorted(folder.iterdir()):
        reader = pywrap_tensorflow.PyRecordReader_New(str(path))
        while True:
            try:
                reader.GetNext()
            except pywrap_tensorflow.errors.OutOfRangeError:
                break
            yield event_pb2.Event.FromString(reader.record())


def scalars(folder):
    return [
        (value.tag, event.step, value.simple_value)
        for event in events(folder)
        for value in event.summary.value
    ]


def as_tensorboard(folder, expression):
    """What TensorBoard's own reader, `accumulator`, has to say of a run."""
    # In a process of its own, where TensorBoard is made to do without TensorFlow: seconds less.
    code = f"""
import json, sys, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
from tensorboard.backend.event_processing import event_accumulator
accumulator = event_accumulator.EventAccumulator({str(folder)!r}).Reload()
print(json.dumps({expression}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def session(folder):
    """The hyperparameters of each session that TensorBoard's HPARAMS page finds, by their kinds."""
    from tensorboard.plugins.hparams import metadata

    for event in events(folder):
        for value in event.summary.value:
            if value.tag == metadata.SESSION_START_INFO_TAG:
                assert value.metadata.plugin_data.plugin_name == metadata.PLUGIN_NAME
                info = metadata.parse_session_start_info_plugin_data(value.metadata.plugin_data.content)
                yield {name: getattr(v, v.WhichOneof("kind")) for name, v in info.hparams.items()}


@pytest.mark.promise("Logs")
def test_each_number_becomes_a_scalar_at_its_step(tmp_path):
    with loggers.TensorBoardLogger(tmp_path, "learner", "learner_steps") as logger:
        logger.write({"learner_steps": 10, "loss/critic": torch.tensor(0.5), "note": "left out"})
        logger.write({"learner_steps": np.int64(20), "loss/critic": 0.25, "skipped": 1})
    assert scalars(tmp_path / "learner") == [
        ("learner_steps", 10, 10.0),
        ("loss/critic", 10, 0.5),
        ("learner_steps", 20, 20.0),
        ("loss/critic", 20, 0.25),
        ("skipped", 20, 1.0),
    ]


def test_a_name_may_have_a_tag_of_its_own_instead_of_the_loggers_group(tmp_path):
    with loggers.TensorBoardLogger(
        tmp_path, "actor", "steps", group="actor", tags={"return": "Return/training"}
    ) as logger:
        logger.write({"steps": 1, "return": 2.0, "loss/critic": 3.0})
    assert [tag for tag, *_ in scalars(tmp_path / "actor")] == [
        "actor/steps",
        "Return/training",
        "loss/critic",
    ]


def test_each_row_is_with_the_system_when_write_returns(tmp_path):
    with loggers.TensorBoardLogger(tmp_path, "actor", "steps") as logger:
        for step in range(3):
            logger.write({"steps": step})
            assert [entry[1] for entry in scalars(tmp_path / "actor")] == list(range(step + 1))


def test_a_continued_run_hides_what_was_written_at_later_steps(tmp_path):
    for steps in ((1, 2, 3), (2, 4)):
        with loggers.TensorBoardLogger(tmp_path, "actor", "steps") as logger:
            for step in steps:
                logger.write({"steps": step, "return": 10 * step + len(steps)})
    shown = as_tensorboard(
        tmp_path / "actor", '[(event.step, event.value) for event in accumulator.Scalars("return")]'
    )
    assert shown == [[1, 13.0], [2, 22.0], [4, 42.0]]


def test_a_purge_hides_the_steps_that_the_first_row_would_leave(tmp_path):
    for purged, steps in ((0, (1, 2, 3)), (2, (4,))):
        with loggers.TensorBoardLogger(tmp_path, "actor", "steps", hyperparameters={"seed": 1}) as logger:
            logger.purge(purged)
            for step in steps:
                logger.write({"steps": step, "return": 10 * step})
    shown = as_tensorboard(
        tmp_path / "actor", '[(event.step, event.value) for event in accumulator.Scalars("return")]'
    )
    assert shown == [[1, 10.0], [4, 40.0]]
    assert list(session(tmp_path / "actor")) == [{"seed": 1.0}] * 2


def test_loggers_of_one_run_never_share_a_file(tmp_path):
    with (
        loggers.TensorBoardLogger(tmp_path, "actor", "steps") as first,
        loggers.TensorBoardLogger(tmp_path, "actor", "steps") as second,
    ):
        assert first.path != second.path


def test_a_row_without_its_steps_is_refused(tmp_path):
    message = r"must have its `steps_key`, `actor_steps`, got \['loss'\]"
    with (
        loggers.TensorBoardLogger(tmp_path, "actor", "actor_steps") as logger,
        pytest.raises(ValueError, match=message),
    ):
        logger.write({"loss": 0.5})
    assert scalars(tmp_path / "actor") == []


def test_a_closed_logger_refuses_rows(tmp_path):
    logger = loggers.TensorBoardLogger(tmp_path, "actor", "steps")
    logger.close()
    logger.close()
    with pytest.raises(ValueError, match="is closed"):
        logger.write({"steps": 1})


def test_neither_tensorflow_nor_a_word_of_it_is_brought_in(tmp_path):
    code = f"""
import json, sys
from minerva_acme import loggers
before = "tensorboard" in sys.modules
with loggers.TensorBoardLogger({str(tmp_path)!r}, "actor", "steps") as logger:
    logger.write({{"steps": 1}})
print(json.dumps([before, "tensorboard" in sys.modules, "tensorflow" in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [False, True, False]


def test_a_name_without_a_group_gets_the_one_asked_for(tmp_path):
    with loggers.TensorBoardLogger(tmp_path, "learner", "learner_steps", group="learner") as logger:
        logger.write({"learner_steps": 10, "loss/critic": 0.5})
    assert scalars(tmp_path / "learner") == [("learner/learner_steps", 10, 10.0), ("loss/critic", 10, 0.5)]


def test_a_description_is_a_table_of_the_text_page(tmp_path):
    with loggers.TensorBoardRun(tmp_path) as run:
        run.write_description({"agent": "mpo", "hyperparameters": {"discount": 0.99, "sizes": [8, 8]}})
    (value,) = [value for event in events(tmp_path) for value in event.summary.value]
    assert value.metadata.plugin_data.plugin_name == "text"
    assert value.tensor.string_val[0].decode().splitlines() == [
        "| name | value |",
        "|---|---|",
        "| agent | mpo |",
        "| hyperparameters.discount | 0.99 |",
        "| hyperparameters.sizes | [8, 8] |",
    ]


HYPERPARAMETERS = {"agent": "ppo", "seed": 3, "squash": False, "target_kl": None, "sizes": (8, 8)}
GIF = b"GIF89a" + bytes([64, 1, 240, 0]) + b"the rest"  # of 320 times 240 pixels


def test_hyperparameters_are_a_session_of_the_run_whose_numbers_are_its_metrics(tmp_path):
    with loggers.TensorBoardLogger(tmp_path, "evaluator", "steps", hyperparameters=HYPERPARAMETERS) as logger:
        assert (
            list(session(tmp_path / "evaluator")) == []
        )  # after the first row's start, or it would hide them
        logger.write({"steps": 0, "return": 1.0})
        logger.write({"steps": 5, "return": 2.0})
    (shown,) = session(tmp_path / "evaluator")
    assert shown == {"agent": "ppo", "seed": 3.0, "squash": False, "target_kl": "None", "sizes": "(8, 8)"}
    assert type(shown["squash"]) is bool
    # Columns fixed by one run would hide what others have besides.
    tags = {value.tag for event in events(tmp_path / "evaluator") for value in event.summary.value}
    assert tags == {"_hparams_/session_start_info", "steps", "return"}


def test_a_continued_run_is_still_one_line_of_the_table_with_its_films(tmp_path):
    for steps in ((0, 5), (5, 10)):
        with loggers.TensorBoardLogger(
            tmp_path, "evaluator", "steps", hyperparameters=HYPERPARAMETERS
        ) as logger:
            for step in steps:
                logger.write({"steps": step, "return": 1.0})
                logger.write_film("evaluation/video", GIF, step=step)
    shown = as_tensorboard(
        tmp_path / "evaluator",
        """[
            [event.step for event in accumulator.Images("evaluation/video")],
            [event.step for event in accumulator.Tensors("_hparams_/session_start_info")],
            [accumulator.SummaryMetadata("_hparams_/session_start_info").plugin_data.plugin_name],
        ]""",
    )
    assert shown == [[0, 5, 10], [0, 5], ["hparams"]]


def test_a_film_is_an_image_of_its_size_at_its_step(tmp_path):
    with loggers.TensorBoardLogger(tmp_path, "evaluator", "steps", group="evaluator") as logger:
        logger.write_film("evaluation/video", GIF, step=40)
        logger.write_film("best", GIF, step=50)
    films = [
        (event.step, value.tag, value.image.width, value.image.height, value.image.encoded_image_string)
        for event in events(tmp_path / "evaluator")
        for value in event.summary.value
    ]
    assert films == [(40, "evaluation/video", 320, 240, GIF), (50, "evaluator/best", 320, 240, GIF)]


def test_what_is_no_film_is_refused(tmp_path):
    logger = loggers.TensorBoardLogger(tmp_path, "evaluator", "steps")
    with pytest.raises(ValueError, match=r"`gif` must be the bytes of a gif, got b'\\x89PNG'"):
        logger.write_film("evaluation/video", b"\x89PNG and so on", step=0)
    logger.close()
    with pytest.raises(ValueError, match="is closed"):
        logger.write_film("evaluation/video", GIF, step=0)


def log(folder, rows, cut=None, step=0):
    """Writes rows, each a label with values or the step of a film, as a session of one run."""
    with loggers.TensorBoardRun(folder) as run:
        made = {
            label: loggers.TensorBoardLogger(folder, label, "steps", group=label, run=run)
            for label in ("actor", "learner", "evaluator")
        }
        run.cut(cut or {}, step=step)
        for label, values in rows:
            if isinstance(values, int):
                made[label].write_film("evaluation/video", GIF, step=values)
            else:
                made[label].write(values)
        for logger in made.values():
            logger.close()


def test_the_loggers_of_a_training_are_one_run_in_one_file(tmp_path):
    log(tmp_path, [("actor", {"steps": 3, "return": 1.0}), ("learner", {"steps": 4, "loss/critic": 2.0})])
    assert len(list(tmp_path.iterdir())) == 1
    shown = as_tensorboard(
        tmp_path, "{tag: accumulator.Scalars(tag)[0].step for tag in accumulator.Tags()['scalars']}"
    )
    assert shown == {"actor/return": 3, "actor/steps": 3, "learner/steps": 4, "loss/critic": 4}


def test_a_row_of_a_shared_run_without_its_steps_is_drawn_where_the_run_is(tmp_path):
    log(tmp_path, [("actor", {"steps": 7}), ("learner", {"updates": 1})])
    assert scalars(tmp_path) == [("actor/steps", 7, 7.0), ("learner/updates", 7, 1.0)]


def test_what_a_training_makes_again_is_shown_once(tmp_path):
    first = [
        ("learner", {"steps": 10, "updates": 1, "loss/critic": 0.1}),
        ("evaluator", 10),
        ("evaluator", {"steps": 10, "return": 1.0}),
        # The checkpoint is here, in the middle of step 10.
        ("learner", {"steps": 10, "updates": 2, "loss/critic": 0.2}),
        ("actor", {"steps": 12, "return": 3.0}),
        ("evaluator", 20),
    ]
    log(tmp_path, first)
    again = [
        ("learner", {"steps": 10, "updates": 2, "loss/critic": 0.25}),
        ("actor", {"steps": 12, "return": 3.5}),
        ("evaluator", 20),
    ]
    cut = {"learner/updates": 1, "actor/steps": 10, "evaluator/steps": 10, "evaluation/video": 10}
    log(tmp_path, again, cut, step=10)
    values = """[
        [(event.step, round(event.value, 3)) for event in accumulator.Scalars(tag)]
        for tag in ("loss/critic", "actor/return", "evaluator/return")
    ] + [[event.step for event in accumulator.Images("evaluation/video")]]"""
    shown = as_tensorboard(tmp_path, values)
    assert shown == [[[10, 0.1], [10, 0.25]], [[12, 3.5]], [[10, 1.0]], [10, 20]]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_that_a_kill_left_in_the_middle_of_a_record_is_cut_to_its_whole_ones(tmp_path):
    log(tmp_path, [("actor", {"steps": step}) for step in (1, 2)])
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes() + b"\x09" * 20)
    log(tmp_path, [], {"actor/steps": 1}, step=1)
    assert [value for _, _, value in scalars(tmp_path)] == [1.0]


def test_damage_in_a_file_is_left_to_tensorboard_to_tell(tmp_path):
    log(tmp_path, [("actor", {"steps": step}) for step in (1, 2)])
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[12:20] = b"\xff" * 8  # the data of the first record
    file.write_bytes(content)
    size = file.stat().st_size
    log(tmp_path, [], {"actor/steps": 1}, step=1)
    after = file.read_bytes()
    assert after.startswith(bytes(content[:30])) and len(after) < size


def test_a_file_with_nothing_to_take_out_stays_as_it_is(tmp_path):
    log(tmp_path, [("actor", {"steps": step}) for step in (1, 2)])
    (file,) = tmp_path.iterdir()
    before = file.stat()
    log(tmp_path, [], {"actor/steps": 2}, step=2)
    assert file.stat().st_ino == before.st_ino and file.stat().st_mtime_ns == before.st_mtime_ns


def test_an_event_that_the_disk_has_no_room_for_is_an_error_and_not_half_there(tmp_path, disk_that_ends_at):
    logger = loggers.TensorBoardLogger(tmp_path, "actor", "steps")
    logger.write({"steps": 1, "return": 1.0})
    num_before = len(logger.path.read_bytes())
    with (
        disk_that_ends_at(num_before + 10),
        pytest.raises(OSError, match=r"tfevents.* cannot be written: .* are free there"),
    ):
        logger.write({"steps": 2, "return": 2.0})
    assert len(logger.path.read_bytes()) == num_before
    logger.write({"steps": 3, "return": 3.0})
    logger.close()
    assert [event.step for event in events(tmp_path / "actor")][-2:] == [1, 3]


def test_rows_of_as_many_steps_as_float32_cannot_tell_apart_are_cut_by_their_steps(tmp_path):
    last = 20_000_003  # rounds up; the next one that is a float32 is 20,000,004
    log(tmp_path, [("actor", {"steps": last + step, "return": 1.0 * step}) for step in (-2, 0, 1, 2)])
    log(tmp_path, [], {"actor/steps": last}, step=last)
    kept = [step - last for tag, step, _ in scalars(tmp_path) if tag == "actor/return"]
    assert kept == [-2, 0]
