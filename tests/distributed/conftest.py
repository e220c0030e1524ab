import uuid
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def leaves_the_home_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps Ray's token, of which a process knows one for good, out of the home directory."""
    token = tmp_path_factory.mktemp("ray") / "token"
    token.write_text(uuid.uuid4().hex)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield
