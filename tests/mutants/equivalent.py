"""Generated mutants that are right too, each with the reason why no test could notice."""

# By file, function and change: the mutant's name without its number in brackets.
EQUIVALENT: dict[str, str] = {
    "minerva_acme/learners/optimizers.py make_optimizer: "
    """sed = device in ("cpu", "cuda") -> sed = device in ('cpu',)""": (
        "the fused kernel is quicker on a GPU, of which tests have none, and makes the same step"
    ),
    "minerva_acme/learners/targets.py update_target: if slow and rate == 1.0: -> if slow and False:": (
        "moving a tensor all the way is a copy; the copy is quicker"
    ),
}
