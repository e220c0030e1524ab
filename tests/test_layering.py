"""Imports go one way: from the upper layers to the lower ones."""

import ast
import functools
import graphlib
import pathlib
import sys
from collections.abc import Collection

# Lower layers first; a package may import from those before it. The longest name that fits a module gives
# its layer.
LAYERS = {
    name: layer
    for layer, names in enumerate(
        [
            ["_version", "names"],
            ["machine"],
            ["constraints", "results"],
            ["types", "specs", "core", "counting"],
            ["distributions", "loggers", "wrappers", "replay"],
            ["losses", "networks", "actors", "environments", "observers", "datasets"],
            ["acceleration", "builders"],
            ["learners", "testing"],
            ["adders"],
            ["agents"],
            ["video"],
            ["runs"],
            ["plotting"],
            ["experiments"],
            ["distributed"],
            ["cli"],
            ["__main__"],
        ]
    )
    for name in names
}
TORCH_FREE = ("minerva_acme.constraints", "minerva_acme.machine.memory", "minerva_acme.names")
# What learners and agents get through `acceleration.Acceleration`.
KERNELS = "minerva_acme.acceleration"
MATHS = ("minerva_acme.distributions", "minerva_acme.losses", "minerva_acme.networks")
# What of it meets observations of any structure.
TAKES_NESTS = tuple(
    f"minerva_acme.networks.{name}"
    for name in ("actor_critic", "critic_observations", "encoders", "normalizer", "recurrent")
)
OF_NESTS = ("tree", "minerva_acme.specs", "minerva_acme.types")
# Where a library that is slow or hard to install may be named, be it lazily.
ONLY_IN = {
    "dm_control": ("minerva_acme.environments",),
    "gymnasium": ("minerva_acme.environments",),
    "h5py": ("minerva_acme.datasets.hdf5",),
    "imageio_ffmpeg": ("minerva_acme.video.movie",),
    "optuna": ("minerva_acme.cli.study",),
    "matplotlib": ("minerva_acme.plotting.figure", "minerva_acme.plotting.report_figures"),
    "PIL": ("minerva_acme.video.movie",),
    "ray": ("minerva_acme.distributed.ray_engine", "minerva_acme.distributed.jobs"),
    "reverb": ("minerva_acme.replay.reverb.loader",),
    "tensorboard": ("minerva_acme.loggers",),
    "tensorflow": ("minerva_acme.replay.reverb.loader", "minerva_acme.loggers"),
    "wandb": ("minerva_acme.loggers.wandb",),
}


def belongs_to(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def layer(module: str) -> int:
    if module == "minerva_acme":
        return 0
    return LAYERS[module.split(".")[1]]


@functools.cache
def imports(source: str) -> tuple[str, ...]:
    """Returns what a file imports, at the top or in a function, as dotted names.

    `from a import b` gives `a.b`, whether b is a module or a name in one. An import by a string
    counts; a relative one is given with its dots.
    """
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found += (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            if ast.unparse(node.func).endswith(("import_module", "__import__")):
                found.append(str(node.args[0].value))
    return tuple(found)


def upward(module: str, source: str) -> list[str]:
    if module == "minerva_acme":  # offers names of every layer; each is imported when it is used
        return []
    return [
        f"{module} imports {name}"
        for name in imports(source)
        if belongs_to(name, "minerva_acme") and layer(name) > layer(module)
    ]


def foreign_to_maths(module: str, source: str) -> list[str]:
    allowed = {"torch", "numpy", *sys.stdlib_module_names}
    return [
        f"{module} imports {name}"
        for name in imports(source)
        if name.split(".")[0] not in allowed
        if not any(belongs_to(name, package) for package in (*MATHS, *TORCH_FREE))
        if module not in TAKES_NESTS or name not in OF_NESTS
    ]


def out_of_place(module: str, source: str) -> list[str]:
    return [
        f"{module} imports {name}"
        for name in imports(source)
        for library, places in ONLY_IN.items()
        if library in name.split(".")[:3] and not belongs_to(name, "minerva_acme")
        if not any(belongs_to(module, place) for place in places)
    ]


def test_no_module_imports_from_a_layer_above_it(source_files: dict[str, pathlib.Path]) -> None:
    wrong = [line for module, path in source_files.items() for line in upward(module, path.read_text())]
    assert not wrong, "\n".join(wrong)


def test_the_maths_imports_torch_and_numpy_alone(source_files: dict[str, pathlib.Path]) -> None:
    wrong = [
        line
        for module, path in source_files.items()
        if any(belongs_to(module, package) for package in MATHS)
        for line in foreign_to_maths(module, path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def find_cycle(imported: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle, the first one again at the end; empty if there are none."""
    try:
        graphlib.TopologicalSorter(imported).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def modules_imported(source: str, modules: Collection[str]) -> set[str]:
    found = set()
    for name in imports(source):
        while name and name not in modules:
            name = name.rpartition(".")[0]
        found.add(name)
    return found - {"", "minerva_acme"}


def test_no_modules_import_each_other_in_a_circle(source_files: dict[str, pathlib.Path]) -> None:
    imported = {
        module: modules_imported(path.read_text(), source_files) for module, path in source_files.items()
    }
    assert not find_cycle(imported)


def test_a_circle_is_found_also_through_a_function_and_a_package() -> None:
    modules = ["minerva_acme.a", "minerva_acme.b", "minerva_acme.b.c"]
    back = modules_imported("def f():\n    from minerva_acme import a", modules)
    assert back == {"minerva_acme.a"}
    imported = {
        "minerva_acme.a": modules_imported("from minerva_acme.b import Name", modules),
        "minerva_acme.b": modules_imported("from minerva_acme.b.c import Name", modules),
        "minerva_acme.b.c": back,
    }
    assert len(find_cycle(imported)) == 4
    assert not find_cycle({"minerva_acme.a": set(), "minerva_acme.b": {"minerva_acme.a"}})


def test_heavy_libraries_are_imported_in_their_place_alone(source_files: dict[str, pathlib.Path]) -> None:
    wrong = [line for module, path in source_files.items() for line in out_of_place(module, path.read_text())]
    assert not wrong, "\n".join(wrong)


def test_learners_and_agents_import_no_kernel(source_files: dict[str, pathlib.Path]) -> None:
    wrong = [
        f"{module} imports {name}"
        for module, path in source_files.items()
        if belongs_to(module, "minerva_acme.agents") or belongs_to(module, "minerva_acme.learners")
        for name in imports(path.read_text())
        if name.startswith(f"{KERNELS}.") and name.rpartition(".")[2][0].islower()
    ]
    assert not wrong, "\n".join(wrong)


def test_losses_import_distributions_at_most(source_files: dict[str, pathlib.Path]) -> None:
    allowed = ("minerva_acme.losses", "minerva_acme.distributions")
    wrong = [
        f"{module} imports {name}"
        for module, path in source_files.items()
        if belongs_to(module, "minerva_acme.losses")
        for name in imports(path.read_text())
        if belongs_to(name, "minerva_acme") and not any(belongs_to(name, package) for package in allowed)
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_are_absolute(source_files: dict[str, pathlib.Path]) -> None:
    wrong = [
        f"{module} imports {name}"
        for module, path in source_files.items()
        for name in imports(path.read_text())
        if name.startswith(".")
    ]
    assert not wrong, "\n".join(wrong)


def test_an_upward_import_is_found_wherever_it_stands() -> None:
    lazily = "def make():\n    from minerva_acme import agents"
    by_string = "import importlib\nimportlib.import_module('minerva_acme.cli.main')"
    assert upward("minerva_acme.builders", lazily) == ["minerva_acme.builders imports minerva_acme.agents"]
    assert upward("minerva_acme.agents.mpo", by_string) == [
        "minerva_acme.agents.mpo imports minerva_acme.cli.main"
    ]
    assert not upward("minerva_acme.cli.main", "from minerva_acme.agents import mpo")


def test_a_foreign_import_in_the_maths_is_found() -> None:
    source = "import math, torch.nn\nfrom minerva_acme import core\nfrom minerva_acme.networks import linear"
    found = foreign_to_maths("minerva_acme.losses.mpo", source)
    assert found == ["minerva_acme.losses.mpo imports minerva_acme.core"]


def test_a_heavy_library_out_of_place_is_found() -> None:
    source = "from torch.utils import tensorboard"
    assert out_of_place("minerva_acme.core", source) == ["minerva_acme.core imports torch.utils.tensorboard"]
    assert not out_of_place("minerva_acme.loggers.tensorboard", source)
