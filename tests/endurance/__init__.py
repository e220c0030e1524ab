"""Runs that are killed or stopped many times, and runs that last: `python -m tests.endurance --help`."""
