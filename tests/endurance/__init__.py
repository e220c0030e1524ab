"""Runs that are killed many times, and runs that last: `python -m tests.endurance --help`."""
