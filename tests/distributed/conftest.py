import uuid
from collections.abc import Iterator

import pytest

from minerva_acme.distributed import actor_node, evaluator_node, reports, run
from minerva_acme.replay import waiting


@pytest.fixture(scope="session", autouse=True)
def leaves_the_home_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps Ray's token, of which a process knows one for good, out of the home directory."""
    token = tmp_path_factory.mktemp("ray") / "token"
    token.write_text(uuid.uuid4().hex)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield


@pytest.fixture(scope="module")
def looks_often() -> Iterator[None]:
    """For runs in threads, which are over before a node's usual look at the others."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (run, "_WATCH_SECONDS"),
            (run, "_OVERVIEW_SECONDS"),
            (reports, "PERIOD_SECONDS"),
            (actor_node, "_POLL_SECONDS"),
            (evaluator_node, "_POLL_SECONDS"),
            (waiting, "SLICE_SECONDS"),
        ):
            patch.setattr(module, name, 0.03)
        patch.setitem(reports.Reporter.__init__.__kwdefaults__, "period_seconds", 0.03)
        yield
