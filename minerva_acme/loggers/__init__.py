"""Loggers, which write rows of named values to the terminal, CSV files, TensorBoard or Weights & Biases."""

from minerva_acme.loggers.asynchronous import AsyncLogger
from minerva_acme.loggers.base import Logger
from minerva_acme.loggers.combinators import Dispatcher, InMemoryLogger, NewestRow, TimeFilter
from minerva_acme.loggers.csv import CSVLogger
from minerva_acme.loggers.rates import EverySeconds
from minerva_acme.loggers.tensorboard import TensorBoardLogger, TensorBoardRun
from minerva_acme.loggers.terminal import TerminalLogger
from minerva_acme.loggers.wandb import WandbRun

__all__ = [
    "AsyncLogger",
    "CSVLogger",
    "Dispatcher",
    "EverySeconds",
    "InMemoryLogger",
    "Logger",
    "NewestRow",
    "TensorBoardLogger",
    "TensorBoardRun",
    "TerminalLogger",
    "TimeFilter",
    "WandbRun",
]
