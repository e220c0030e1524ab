"""README and docs say what is so: their code runs, their commands parse, what they name exists."""

import dataclasses
import importlib
import importlib.util
import pathlib
import re
import shlex
import sys
import tomllib
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
import tree

from minerva_acme import core, environments, experiments, plotting, results, wrappers
from minerva_acme.agents import mpo, off_policy, registry
from minerva_acme.cli import commands as cli_commands
from minerva_acme.cli import flags, init, main, parsing
from minerva_acme.plotting import figure, panels
from minerva_acme.runs import run_folder, tasks
from minerva_acme.video import recording

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for path in (
        REPOSITORY / "README.md",
        REPOSITORY / "CONTRIBUTING.md",
        *(REPOSITORY / "docs").rglob("*.md"),
        *(REPOSITORY / "agents").rglob("*.md"),
    )
)
FENCE = re.compile(r"^```(\w*)(?: (\w+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OWN_AGENT = "docs/composing.md"
FIRST_FIGURE = "docs/images/eighteen_tasks.svg"
MOST_STEPS, MOST_STEPS_OF_AN_EPISODE = 150, 20


class Block(NamedTuple):
    """What stands between two fences."""

    language: str
    mark: str  # the word behind the language: for tests, who runs the block or that nobody does
    text: str


class MyLearner(core.Learner):
    """Stands for a learner of the reader: takes batches and learns nothing."""

    def __init__(self, networks: mpo.MPONetworks, dataset: Iterator[Any]) -> None:
        self._networks, self._dataset, self.num_batches = networks, dataset, 0
        learners.append(self)

    def step(self) -> None:
        next(self._dataset)
        self.num_batches += 1

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        weights = dict(self._networks.policy.state_dict())
        return [tree.map_structure(lambda tensor: tensor.numpy().copy(), weights) for _ in names]

    def save(self) -> core.State:
        return self.num_batches

    def restore(self, state: core.State) -> None:
        self.num_batches = state


learners: list[MyLearner] = []
GIVEN: dict[str, dict[str, Any]] = {"docs/quickstart.md": {"MyLearner": MyLearner}}


def read(page: str) -> str:
    return (REPOSITORY / page).read_text()


def blocks(page: str) -> list[Block]:
    return [Block(*match.groups(default="")) for match in FENCE.finditer(read(page))]


def prose(page: str) -> str:
    return FENCE.sub("", read(page))


def commands(page: str) -> list[str]:
    """The command lines of a page, continued ones joined."""
    return [
        line.strip()
        for block in blocks(page)
        if block.language in ("", "bash", "sh")
        for line in block.text.replace("\\\n", " ").splitlines()
    ]


def commands_of(program: str) -> list[tuple[str, list[str]]]:
    """(page, arguments) of every call of a program, behind what it sets in the environment."""
    found = []
    for page in PAGES:
        for line in commands(page):
            line = re.sub(r"^(?:[A-Z_]+=\S+ )+", "", line)
            if line.startswith(f"{program} ") and " <-" not in line:
                found.append((page, shlex.split(line, comments=True)[1:]))
    return found


def limited(environment: Any) -> Any:
    """The environment with short episodes, unless it is a vector or a batch."""
    if isinstance(environment, (environments.VectorEnvironment, environments.BatchedEnvironment)):
        return environment
    return wrappers.StepLimitWrapper(environment, max_steps=MOST_STEPS_OF_AN_EPISODE)


PAGES_WITH_PYTHON = [
    page for page in PAGES if any(b.language == "python" and not b.mark for b in blocks(page))
]


@pytest.mark.parametrize("page", PAGES_WITH_PYTHON)
@pytest.mark.promise("Documentation")
def test_the_python_of_a_page_runs(
    page: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = []

    def run_shortly(
        config: experiments.ExperimentConfig, *callbacks: experiments.Callback, **options: Any
    ) -> experiments.ExperimentResult:
        """As the page says, but for how long and into a folder of the test's own."""
        builder: Any = config.builder
        if isinstance(builder, off_policy.OffPolicyBuilder):
            small = {"batch_size": 4, "min_replay_size": 10, "samples_per_insert": 0.1}
        else:
            small = {"rollout_steps": 64, "minibatch_size": 64, "num_epochs": 1}
        shorter = dataclasses.replace(
            config,
            builder=type(builder)(dataclasses.replace(builder.config, **small)),
            environment_factory=lambda seed: limited(config.environment_factory(seed)),
            num_env_steps=min(MOST_STEPS, config.num_env_steps),
            evaluation_period=0,
            evaluation_episodes=1,
            checkpoint_replay=False,
            tensorboard=config.evaluation_video,
            replay="memory",
        )
        results.append(run_experiment(shorter, *callbacks))
        return results[-1]

    run_experiment = experiments.run_experiment
    monkeypatch.setattr(experiments, "run_experiment", run_shortly)
    monkeypatch.setattr(recording, "choose_renderer", lambda: None)  # for good, in this process
    monkeypatch.chdir(tmp_path)
    names = {**GIVEN.get(page, {}), "__name__": "__main__"}
    learners.clear()
    for block in blocks(page):
        if block.language == "python" and not block.mark:
            exec(compile(block.text, page, "exec"), names)
    calls = sum(
        b.text.count("run_experiment(") for b in blocks(page) if b.language == "python" and not b.mark
    )
    assert len(results) == calls
    assert all(result.after is not None and (result.learner_steps or learners) for result in results)
    assert all(learner.num_batches > 0 for learner in learners)
    assert not [name for name in GIVEN.get(page, {}) if not learners], "what the page was given was not used"
    assert capsys.readouterr().err == ""


def test_every_block_of_python_is_run_by_somebody() -> None:
    left = [
        (page, block.mark)
        for page in PAGES
        for block in blocks(page)
        if block.language == "python" and block.mark
    ]
    # Acme's side of the port, and what tests/examples runs. The others are run by the test below.
    others = [("docs/how-to/own-body.md", "play")]
    others += [("docs/migrating.md", "acme"), ("docs/migrating.md", "ported")]
    assert sorted(left) == [(OWN_AGENT, "my_dqn"), (OWN_AGENT, "swap"), (OWN_AGENT, "use"), *others]


@pytest.fixture
def install_own_agent(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, own_modules_are_forgotten: None
) -> Callable[[], None]:
    """The file of the page on composing lies in the current folder; the function installs its package."""
    text = {block.mark or block.language: block.text for block in blocks(OWN_AGENT)}
    (tmp_path / "my_dqn.py").write_text(text["my_dqn"])
    monkeypatch.chdir(tmp_path)

    def install() -> None:
        content = tomllib.loads(text["toml"])
        assert content["tool"]["setuptools"]["py-modules"] == ["my_dqn", "my_dqn_environment"]
        project = content["project"]
        folder = tmp_path / "site" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        folder.mkdir(parents=True)
        metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        (folder / "METADATA").write_text(metadata)
        groups = project["entry-points"].items()
        lines = [f"[{group}]\n" + "\n".join(map(" = ".join, names.items())) for group, names in groups]
        (folder / "entry_points.txt").write_text("\n".join(lines))
        (tmp_path / "site" / "my_dqn.py").write_text(text["my_dqn"])
        sys.path.insert(0, str(tmp_path / "site"))

    return install


def test_the_agent_of_the_page_on_composing_is_used_as_the_page_says(
    install_own_agent: Callable[[], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = []

    def run_shortly(
        config: experiments.ExperimentConfig, *callbacks: experiments.Callback, **options: Any
    ) -> experiments.ExperimentResult:
        """As the page says, but for a hundredth of the steps."""
        builder: Any = config.builder
        small = {"batch_size": 8, "min_replay_size": 20, "samples_per_insert": 0.4, "layer_sizes": (8,)}
        shorter = dataclasses.replace(
            config,
            builder=type(builder)(dataclasses.replace(builder.config, **small)),
            num_env_steps=config.num_env_steps // 100,
            evaluation_episodes=1,
            tensorboard=False,
            replay="memory",
        )
        results.append(run_experiment(shorter, *callbacks))
        return results[-1]

    run_experiment = experiments.run_experiment
    monkeypatch.setattr(experiments, "run_experiment", run_shortly)
    monkeypatch.setattr(recording, "choose_renderer", lambda: None)  # for good, in this process
    for page, arguments in commands_of("minerva"):
        if page == OWN_AGENT:
            if arguments[0] == "list":
                install_own_agent()
            assert main(arguments) == 0, (arguments, capsys.readouterr().err)
    assert "my_dqn  my_dqn:DQNBuilder, from my-dqn 1.0" in capsys.readouterr().out
    (code,) = (block.text for block in blocks(OWN_AGENT) if block.mark == "use")
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, OWN_AGENT, "exec"), names)
    assert names["action"] in (0, 1)
    assert [result.env_steps for result in results] == [300, 300, 400, 300, 300]
    assert all(result.learner_steps > 0 for result in results)
    runs = pathlib.Path("runs", "CartPole-v1")
    assert pathlib.Path("dqn.png").exists() and list(
        runs.glob("DQNBuilder_default-seed0/policy-*.safetensors")
    )
    assert len(list(runs.glob("DQNBuilder_default-seed0/videos/*"))) == 2
    careful = "DQNBuilder_careful+learning_rate=0.0002-seed1"
    folders = ("DQNBuilder_default-seed0", careful, "my_dqn_default-seed0")
    _, with_care, named = described = [run_folder.read(runs / name) for name in folders]
    assert [run.agent for run in described] == ["my_dqn:DQNBuilder", "my_dqn:DQNBuilder", "my_dqn"]
    assert with_care.hyperparameters["exploration_steps"] == 20_000 and named.config == ""


def test_the_environment_of_the_how_to_keeps_to_dm_env() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in [b for b in blocks("docs/how-to/environments.md") if b.language == "python"][:2]:
        exec(block.text, names)
    suite = names["TestPoint"]()
    tests = [getattr(suite, name) for name in dir(suite) if name.startswith("test_")]
    without_fixtures = [test for test in tests if test.__code__.co_argcount == 1]
    assert len(without_fixtures) >= 5
    for test in without_fixtures:
        test()


def test_the_environment_of_several_rewards_is_one_that_the_commands_of_mpo_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = (b.text for b in blocks("docs/how-to/environments.md") if "class Thrifty" in b.text)
    (tmp_path / "my_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    calls = [
        arguments
        for page, arguments in commands_of("minerva")
        if page == "agents/mpo/README.md" and "--objectives" in arguments and "--env" in arguments
    ]
    names = {arguments[arguments.index("--env") + 1] for arguments in calls}
    assert len(names) == 1
    environment = environments.make_training_environment(names.pop(), seed=0)
    assert {*environment.reward_spec()} == {"return", "energy"}
    del sys.modules["my_module"]


def parse(page: str, arguments: list[str]) -> str:
    """Returns what is wrong with a command of `minerva`, or nothing."""
    if "--config" in arguments:
        (text,) = (block.text for block in blocks(page) if block.language == "toml")
        pathlib.Path("settings.toml").write_text(text)
        run_folder.RunDescription(
            agent="ppo", environment="CartPole-v1", seed=0, hyperparameters={}, options={"num_env_steps": 9}
        ).write(pathlib.Path("runs", "demo"))
    try:
        parsed = type(parsing.parse(arguments)).__name__.lower()
    except ValueError as error:
        return str(error)
    except SystemExit as stopped:
        return "" if "--help" in arguments and stopped.code == 0 else f"ends with status {stopped.code}"
    return "" if parsed == arguments[0].replace("-", "") else f"is parsed as {parsed}"


def test_every_command_of_a_page_parses(
    install_own_agent: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install_own_agent()
    commands = commands_of("minerva")
    assert len(commands) > 100
    wrong = []
    for page, arguments in commands:
        if said := parse(page, arguments):
            wrong.append(f"{page}: minerva {' '.join(arguments)}: {said}{capsys.readouterr().err}")
    assert not wrong, "\n".join(wrong)


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", read("Makefile"), re.MULTILINE))
    named = {(page, arguments[0]) for page, arguments in commands_of("make")}
    named |= {(page, target) for page in PAGES for target in re.findall(r"`make ([a-z0-9-]+)", prose(page))}
    assert len({target for _, target in named}) >= 6
    assert not {(page, target) for page, target in named if target not in targets}


def test_every_flag_that_a_page_names_exists() -> None:
    known = {"--help", "--version", flags.AGENT, parsing.DEBUG, *flags.OTHER_NAMES}
    for agent in registry.AGENTS:
        known.update(dict(flags.of(parsing.train_command(agent))))
    for command in cli_commands.COMMANDS.values():
        known.update(dict(flags.of(command)))
    # But for other programs' flags.
    named = {
        (page, flag)
        for page in PAGES
        for code in re.findall(r"`([^`\n]+)`", prose(page))
        if not code.startswith(("make ", "pip ", "python ", "tensorboard "))
        for flag in re.findall(r"--[a-z][a-z-]+", code)
    }
    assert len(named) >= 10
    ours = {(page, flag) for page, flag in named if flag not in known}
    assert not ours


def test_every_file_that_a_page_names_exists() -> None:
    roots = ["", "minerva_acme", "minerva_acme/losses", "examples"]
    missing = []
    for page in PAGES:
        folders = [REPOSITORY / root for root in roots] + [(REPOSITORY / page).parent]
        for name in re.findall(r"`((?:[\w-]+/)*[\w-]+(?:\.py|\.md|\.csv|\.txt|\.cfg|/))`", prose(page)):
            in_a_run = name.split("/")[0] in ("runs", "build", "report") or name in (
                "actor.csv",
                "learner.csv",
                "evaluator.csv",
                *(f"{block.mark}.py" for block in blocks(page)),
                *init.render("my_dqn"),
            )
            if not in_a_run and not any((folder / name).exists() for folder in folders):
                missing.append((page, name))
    assert not missing


def test_every_link_leads_somewhere() -> None:
    missing = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            found = ((REPOSITORY / page).parent / path).resolve() if path else REPOSITORY / page
            if not found.exists() or (anchor and anchor not in anchors(found)):
                missing.append((page, target))
    assert not missing


def anchors(path: pathlib.Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_name_of_the_library_that_a_page_names_exists(hooks: types.ModuleType) -> None:
    """The page on migrating has Acme's names too, and its own test."""
    modules = {name.removeprefix("minerva_acme."): name for name in hooks.public_modules()}
    missing, found = [], 0
    for page in PAGES:
        if page == "docs/migrating.md":
            continue
        for name in re.findall(
            r"`([a-z_]+(?:\.\w+)+)(?:\(.*?\))?`", prose(page).replace("`minerva_acme.", "`")
        ):
            first, *rest = name.split(".")
            if first not in modules or rest in (["py"], ["csv"], ["txt"]):
                continue
            found += 1
            thing: Any = importlib.import_module(modules[first])
            for part in rest:
                if isinstance(thing, types.ModuleType) and not hasattr(thing, part):
                    missing.append((page, name))
                    break
                thing = getattr(thing, part)
    assert found >= 8
    assert not missing


@pytest.fixture(scope="module")
def of_eighteen_tasks() -> list[plotting.Report]:
    """Makes the reports of the page: of all eighteen tasks, and of those that no choice used."""
    page = read("docs/frontier.md").replace("\\\n", "").replace("$D/", "dm_control/")
    made = []
    for line in re.findall(r"^minerva (report mpo_modern\w* .*)$", page, re.MULTILINE):
        command = parsing.parse(shlex.split(line))
        assert isinstance(command, cli_commands.Report) and command.step == 100_000
        (stored,) = (results.load()[name] for name in command.results)
        chosen = results.select(stored, command.env) if command.env else stored
        made.append(plotting.make_report([chosen], against=command.against or (), step=command.step))
    assert [len(report.by_environment) for report in made] == [18, 11]
    return made


def test_the_figure_of_the_first_page_is_the_one_of_the_eighteen_tasks(
    of_eighteen_tasks: list[plotting.Report], tmp_path: pathlib.Path
) -> None:
    aggregate = of_eighteen_tasks[0].aggregate
    assert aggregate is not None and f"]({FIRST_FIGURE})" in read("README.md")
    drawn = figure.draw([aggregate], y_label="Normalised score")
    (file,) = figure.save(drawn, tmp_path / "sample_efficiency.svg")
    # Text is drawn as paths, with the text itself as a comment.
    texts = [re.findall("<!-- (.*?) -->", path.read_text()) for path in (file, REPOSITORY / FIRST_FIGURE)]
    assert texts[0] == texts[1]
    panels = of_eighteen_tasks[0].by_environment
    assert {group.seeds_by_task[0] for panel in panels for group in panel.groups} == {2}
    by_task = figure.draw(panels, y_label="Return")
    assert len({ax.get_xlim() for ax in by_task.axes[:18]}) == 1
    assert len({ax.get_ylim() for ax in by_task.axes[:18]}) == 1


def test_the_tables_of_the_eighteen_tasks_are_what_their_commands_print(
    of_eighteen_tasks: list[plotting.Report],
) -> None:
    def rows(report: plotting.Report, title: str) -> Sequence[Sequence[str]]:
        (table,) = (table for table in report.tables if table.title.startswith(title))
        return table.rows

    page = read("docs/frontier.md")
    returns = rows(of_eighteen_tasks[0], "Returns by environment")
    of_all, of_eleven = (
        {row[0]: row[2:6] for row in rows(report, "Scores on")} for report in of_eighteen_tasks
    )
    merged = [[name, *of_all.get(name, ["-"] * 4), *cells] for name, cells in of_eleven.items()]
    assert len(returns) == 18 and len(merged) == 7
    assert [row for row in [*returns, *merged] if f"\n| {' | '.join(row)} |\n" not in page] == []


def test_the_scores_of_modern_are_of_its_rows() -> None:
    """Those that the page has: a run that has ended may not be on it yet."""
    rows = results.load()["mpo_modern"].rows
    scores = {(panels.make_title(r.env_name), r.seed): r.value for r in rows if r.metric == "final_return"}
    (lines,) = re.findall(
        r"^\| environment \| seed 0 \| seed 1 \|\n.*\n((?:\|.*\n)+)", read("docs/frontier.md"), re.M
    )
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()]
    shown = [(task, seed, cell) for task, *both in cells for seed, cell in enumerate(both) if cell]
    assert shown and shown == [(task, seed, f"{scores[task, seed]:,.0f}") for task, seed, _ in shown]


def test_searches_of_the_site_list_guides_before_the_reference(hooks: types.ModuleType) -> None:
    boosts = {}
    for path in ("api/minerva_acme.losses.md", "how-to/runs.md", "index.md"):
        page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri=path), meta={})
        hooks.on_page_markdown("# A page\n", page=page)
        boosts[path] = page.meta.get("search", {}).get("boost", 1.0)
    assert 1_000 * boosts["api/minerva_acme.losses.md"] < 0.1  # a word in a title counts 1,000 times
    assert boosts["how-to/runs.md"] == boosts["index.md"] == 1.0


@pytest.mark.parametrize("agent", list(registry.AGENTS))
def test_the_table_of_defaults_has_every_field_with_its_value_and_meaning(
    agent: str, hooks: types.ModuleType
) -> None:
    table = hooks.defaults_table(agent)
    rows = {row.split("`")[1]: row for row in table.splitlines() if row.startswith("| `")}
    config = registry.AGENTS[agent].presets["default"]
    assert list(rows) == [field.name for field in dataclasses.fields(config)]
    for name, row in rows.items():
        cells = [cell.strip() for cell in row.split("|")]
        value = getattr(config, name)
        assert cells[2] == (
            f"{value:,}"
            if type(value) is int
            else " ".join(map(str, value))
            if isinstance(value, tuple)
            else str(value)
        )
        assert len(cells[-2]) > 10
        assert len(re.findall(r"(?<!\\)\|", row)) == len(re.findall(r"(?<!\\)\|", table.splitlines()[-1]))


def test_the_tables_of_results_have_every_run_and_a_command_of_every_entry(hooks: types.ModuleType) -> None:
    text = hooks.on_page_markdown(
        read("docs/results.md"), page=types.SimpleNamespace(file=types.SimpleNamespace(src_uri="results.md"))
    )
    rows = re.findall(r"^\| [\w/.-]+ \| `.*$", text, re.MULTILINE)
    assert len(rows) == len(tasks.load())
    by_agent = {part.split("\n")[0]: part for part in text.split("\n## ")}
    for task in tasks.load():
        (row,) = (
            row for row in by_agent[task.agent].splitlines() if row.startswith(f"| {task.environment} |")
        )
        assert f"| {task.num_env_steps:,} | {task.mean:,.1f} | {task.median:,.1f} |" in row
        for run in task.runs:
            assert f"{run.seed}: {run.score:,.1f} ± {run.std:,.1f}" in row
        assert task.command(task.runs[0].seed) in by_agent[task.agent].splitlines()


def test_links_of_an_included_page_are_pointed_from_the_page_it_is_in(hooks: types.ModuleType) -> None:
    mend = hooks._rewrite_links
    text = "[a](../../README.md#results) [b](../ppo/README.md) [c](config.py) [d](https://e.org)"
    assert mend(text, "agents/mpo/README.md", "agents/mpo.md") == (
        "[a](../index.md#results) [b](ppo.md) c [d](https://e.org)"
    )
    assert mend("![e](docs/x.png)", "README.md", "index.md") == "![e](x.png)"
    fenced = "```\n[a](b.py)\n```"
    assert mend(fenced, "README.md", "index.md") == fenced


def test_code_wraps_behind_the_parts_of_a_path_and_not_within_a_flag(hooks: types.ModuleType) -> None:
    mend = hooks.on_page_content
    code = "<code>minerva train --num-env-steps 5 a/b_c::d</code>"
    wrapped = mend(f"<p>a_b --c {code}</p>")
    assert re.sub(r"</?span[^>]*>|<wbr>", "", wrapped) == f"<p>a_b --c {code}</p>"
    assert wrapped.startswith("<p>a_b --c <code>")
    assert '<span class="flag">--num-env-steps</span> 5 a/<wbr>b_<wbr>c::<wbr>d' in wrapped
    highlighted = '<code><span class="n_a">make_x</span></code>'
    assert mend(highlighted) == '<code><span class="n_a">make_<wbr>x</span></code>'
    block = "<pre><span></span><code>make_x --y-z</code></pre>"
    assert mend(block) == block.replace("--y-z", '<span class="flag">--y-z</span>')


def test_equations_are_drawn_without_anything_from_elsewhere(hooks: types.ModuleType) -> None:
    drawn = hooks.on_page_content(r'<p><span class="arithmatex">\(\frac{a}{b} &lt; \epsilon\)</span></p>')
    assert drawn.startswith("<p><svg") and drawn.endswith("</svg></p>")
    assert r'aria-label="\frac{a}{b} &lt; \epsilon"' in drawn
    assert "currentColor" in drawn and "<script" not in drawn


def test_every_equation_can_be_drawn(hooks: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        line
        for page in registry.AGENTS
        for match in re.findall(
            r"^\$\$\n(.*?)^\$\$$", read(f"agents/{page}/README.md"), re.DOTALL | re.MULTILINE
        )
        for line in match.strip().splitlines()
    ]
    assert len(lines) >= 20
    assert "<path" in hooks._draw(lines[0])

    def write(drawn: Any, file: Any, **_: Any) -> None:
        file.write("<svg></svg>")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", write)  # an equation is read before that
    assert all(hooks._draw(line).startswith("<svg") for line in lines)
    with pytest.raises(ValueError, match="Unknown symbol"):
        hooks._draw(r"\unknown")
