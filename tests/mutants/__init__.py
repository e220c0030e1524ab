"""Mutants: the library with one deliberate mistake each. `make mutants` looks whether tests notice them.

A mutant that survives is a mistake that somebody could make tomorrow, and no test would say so. There are
two kinds.

Generated ones (`generated.py`) are made from the syntax tree: a sign, a bound, a condition, a statement
left out. There are some 50,000, so that a run judges a sample of each file, or all with a word in their
name or file. The tests that must notice are found by the file's place (`tests_of.py`). One that is right
too is named in `equivalent.py`, with the reason; where a whole form never is a mistake, teach
`generated.py` not to make it.

Quoted ones (`mutants.py`) are mistakes of meaning, which no rule makes: V-MPO takes the worst samples. To
add one, write a line under the file that it breaks:

    breakage("V-MPO takes the worst samples", "topk(k).indices", "topk(k, largest=False).indices"),

The old text must stand there exactly once: take a few more words of the line, or two lines, where it does
not. What is written instead must still run, and must do something else: a mutant that fails at import, or
that is right too, says nothing of the tests. Beside the file stand the tests that must notice; choose those
that are about it, for each mutant runs them. `--tidy` takes out what is generated as well, and follows
texts that moved to another file.

`python -m tests.mutants --help` says how to run some of them. The tool works on a copy of the tree.
"""
