"""Recorded episodes: their files in Minari's layout, and playing them through an adder into replay."""

from minerva_acme.datasets.conversion import check_spec
from minerva_acme.datasets.demonstrations import Demonstrations
from minerva_acme.datasets.episodes import Episode, Recorded, as_episode
from minerva_acme.datasets.minari import Recording, Writer, read, write
from minerva_acme.datasets.playing import UNKNOWN_LOG_PROB, Played, play
from minerva_acme.datasets.recording import Recorder, RecordingAdder

__all__ = [
    "Demonstrations",
    "Episode",
    "Played",
    "Recorded",
    "Recorder",
    "Recording",
    "RecordingAdder",
    "UNKNOWN_LOG_PROB",
    "Writer",
    "as_episode",
    "check_spec",
    "play",
    "read",
    "write",
]
