"""Rows of named values, to the terminal, to CSV files and to TensorBoard."""

from minerva_acme.loggers.base import Logger
from minerva_acme.loggers.combinators import Dispatcher, TimeFilter
from minerva_acme.loggers.csv import CSVLogger
from minerva_acme.loggers.default import make_default_logger
from minerva_acme.loggers.tensorboard import TensorBoardLogger
from minerva_acme.loggers.terminal import TerminalLogger

__all__ = [
    "CSVLogger",
    "Dispatcher",
    "Logger",
    "TensorBoardLogger",
    "TerminalLogger",
    "TimeFilter",
    "make_default_logger",
]
