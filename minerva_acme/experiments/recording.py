"""The episodes of a run that ended before it wrote them."""

import contextlib
import os
import pathlib
from typing import Any

from minerva_acme import datasets
from minerva_acme.experiments import parts
from minerva_acme.runs import checkpointing, run_folder


def write_recording(
    run: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    checkpoint: str | int | os.PathLike[str] = "latest",
) -> None:
    """Writes the episodes that a run has recorded until a checkpoint, as the run does when it ends.

    What was recorded after the checkpoint, such as an episode that a kill has cut, is left out: a run that is
    resumed plays it again. If nothing is left, no folder is made, and a warning says so.

    Args:
        run: The folder of a run with `record`, which need not have ended.
        folder: The folder to make for the episodes.
        checkpoint: The checkpoint: "latest", "best", its number of environment steps or its folder.

    Raises:
        ValueError: There is no such run or checkpoint, the run does not record, or `folder` exists.
        DamagedCheckpoint: There is no undamaged checkpoint, or the chosen one is damaged.
        OSError: The episodes could not be written.
    """
    run = pathlib.Path(run)
    description = run_folder.read(run)
    state: Any = checkpointing.load_state(checkpointing.find(run, checkpoint)).get("recording")
    if state is None:
        raise ValueError(
            f"{run} must have recorded its episodes, but its checkpoint has none. Train with `record`, or "
            "play new ones: minerva dataset"
        )
    recorder = datasets.Recorder(folder, run / parts.RECORDED, description.make_specs(), description.origin())
    with contextlib.closing(recorder):
        recorder.restore(state)
        recorder.begin(True)
        recorder.finish()
