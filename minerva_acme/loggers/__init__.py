"""Rows of named values, to the terminal, to CSV files and to TensorBoard."""

from minerva_acme.loggers.asynchronous import AsyncLogger
from minerva_acme.loggers.base import Logger
from minerva_acme.loggers.combinators import Aggregator, Dispatcher, StepFilter, TimeFilter
from minerva_acme.loggers.csv import CSVLogger
from minerva_acme.loggers.default import make_default_logger
from minerva_acme.loggers.rates import EverySeconds, EverySteps, Rate
from minerva_acme.loggers.summaries import SeriesSummary, Summary
from minerva_acme.loggers.tensorboard import TensorBoardLogger
from minerva_acme.loggers.terminal import TerminalLogger

__all__ = [
    "Aggregator",
    "AsyncLogger",
    "CSVLogger",
    "Dispatcher",
    "EverySeconds",
    "EverySteps",
    "Logger",
    "Rate",
    "SeriesSummary",
    "StepFilter",
    "Summary",
    "TensorBoardLogger",
    "TerminalLogger",
    "TimeFilter",
    "make_default_logger",
]
