"""Fuzzing: random damage, and what must hold whatever it is. `make fuzz` runs it, `make test-tools` a part.

A part is a file here with `COUNT`, how many cases `make fuzz` tries, and

    def check(seed: int) -> str: ...    # one case, all of it from the seed; returns its outcome in a word

which raises whatever it likes where something does not hold. `python -m tests.fuzz` finds the parts by
their files, tells the seed of each failure, and tries a single case again with `--seed`.
"""
