"""Mutants: the library with one deliberate mistake each. `make mutants` looks whether tests notice them.

A mutant that survives is a mistake that somebody could make tomorrow, and no test would say so. To add one,
write a line into `mutants.py`:

    breakage("padding counts in the critic's loss", "mask_t > 0", "mask_t >= 0"),

under the file that it breaks. The old text must stand there exactly once: take a few more words of the line,
or two lines, where it does not. What is written instead must still run, and must do something else: a mutant
that fails at import, or that is right too, says nothing of the tests. Beside the file stand the tests that
must notice; choose those that are about it, for each mutant runs them.

`python -m tests.mutants --help` says how to run some of them. The tool works on a copy of the tree.
"""
