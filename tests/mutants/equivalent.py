"""Generated mutants that are right too, each with the reason why no test could notice."""

# By the mutant's name without its number in brackets.
EQUIVALENT: dict[str, str] = {}
