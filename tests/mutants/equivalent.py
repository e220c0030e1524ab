"""Generated mutants that are right too, each with the reason why no test could notice."""
# ruff: noqa: E501  (names are as long as they are)

# Where the quick look of `finite` sees nothing, the slow one looks; each gives what the other gives.
_LOOKS_AGAIN = "what this does not call finite is looked at number by number"

# By file, function and change: the mutant's name without its number in brackets.
EQUIVALENT: dict[str, str] = {
    "minerva_acme/losses/regression.py action_error: "
    "return ((action - recorded) / half_range). -> return (((recorded - action)) / half_range).": (
        "the square of a difference is the same the other way round"
    ),
    "adders/n_step.py NStepTransitionAdder.write_step: "
    "last_large = self._num_steps if self._layou..._n_step) else self._last_large -> last_large = self._num_steps": "folds that no large reward needs change nothing",
    "minerva_acme/acceleration/compiled.py _Changeable.__init__: "
    ": None for x in called.parameters()} -> : None for x in __import__('itertools').islice(called.parameters(), 1)}": "there is one device where tests have no GPU",
    "minerva_acme/learners/optimizers.py make_optimizer: "
    """sed = device in ("cpu", "cuda") -> sed = device in ('cpu',)""": (
        "the fused kernel is quicker on a GPU, of which tests have none, and makes the same step"
    ),
    "minerva_acme/learners/targets.py update_target: if slow and rate == 1.0: -> if slow and False:": (
        "moving a tensor all the way is a copy; the copy is quicker"
    ),
    "minerva_acme/learners/finite.py _is_surely_finite: "
    "array = (tensor.detach() if tensor.requires_grad else tensor).numpy() -> array = (tensor.detach()).numpy()": "to detach a tensor without gradient changes nothing",
    "minerva_acme/learners/finite.py _is_surely_finite: "
    "return bool(specs.square(array.ravel()) <= LARGEST) -> return bool(False)": _LOOKS_AGAIN,
    "minerva_acme/learners/finite.py _is_surely_finite: "
    'if tensor.device.type != "cpu" or... or not tensor.is_contiguous(): -> if True:': _LOOKS_AGAIN,
    "minerva_acme/learners/finite.py _is_surely_finite: "
    "array = (tensor.detach() if tensor.requires_grad else tensor).numpy() -> array = ((tensor.detach() if True else tensor)).numpy()": "to detach a tensor without gradient changes nothing",
    "minerva_acme/learners/finite.py _is_surely_finite: "
    'if tensor.device.type != "cpu" or tensor.dtype -> if False or tensor.dtype': "a tensor of a GPU has no array, and tests have no GPU",
    "minerva_acme/learners/finite.py _is_surely_finite: "
    "return bool(specs.square(array.ravel()) <= LARGEST) -> return (specs.square(array.ravel()) <= LARGEST)": "a boolean of numpy is as true",
}
