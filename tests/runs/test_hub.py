"""Names with hf: read one file, at one commit, and run no code of its."""

import json
import logging
import sys

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import minerva_acme
from minerva_acme import results
from minerva_acme.runs import hub, policies
from tests import stand_in_hub

STORED = results.list_weights()["ppo_default:CartPole-v1"]


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")
    with stand_in_hub.serve(monkeypatch, tmp_path / "cache") as served:
        yield served


def other_weights(**description):
    """Returns the content of stored weights with the opposite preferences and another description."""
    with safetensors.safe_open(STORED, framework="numpy") as file:
        metadata = file.metadata()
    tensors = safetensors.numpy.load_file(STORED)
    described = json.loads(metadata["minerva_acme"]) | description
    metadata = {**metadata, "minerva_acme": json.dumps(described)}
    tensors = {name: -value if "policy_head" in name else value for name, value in tensors.items()}
    return safetensors.numpy.save(tensors, metadata)


@pytest.mark.parametrize(
    ("text", "repository", "revision"),
    [
        ("hf:me/cart-pole", "me/cart-pole", None),
        ("hf:me/cart.pole_2@v1.0", "me/cart.pole_2", "v1.0"),
        ("hf:me/pole@refs/pr/1", "me/pole", "refs/pr/1"),
    ],
)
def test_a_name_has_an_owner_a_name_and_perhaps_a_revision(text, repository, revision):
    assert hub.parse(text) == (repository, revision)
    assert str(hub.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["hf:", "hf:pole", "hf:me/pole@", "hf:me/pole/more", "hf:me/po le", "me/pole"]
)
def test_another_name_is_refused(text):
    with pytest.raises(ValueError, match="must be hf:OWNER/NAME or hf:OWNER/NAME@REVISION, got"):
        hub.parse(text)


@pytest.mark.parametrize("revision", ["", "@main"])
@pytest.mark.promise("`hf:` names read only `policy.safetensors`, at one commit; `minerva")
def test_the_newest_commit_is_resolved_said_and_read(stand_in, caplog, revision):
    stand_in.commit("me/pole", {hub.WEIGHTS: STORED.read_bytes()})
    newest = stand_in.commit("me/pole", {hub.WEIGHTS: other_weights(), "other.py": b"raise SystemExit"})
    observations = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    with caplog.at_level(logging.WARNING):
        policy = minerva_acme.load_policy(f"hf:me/pole{revision}")
    assert f"hf:me/pole{revision} is commit {newest} now. To pin it: hf:me/pole@{newest}" in caplog.text
    stored = minerva_acme.load_policy(STORED)
    assert (policy.batch(observations).action != stored.batch(observations).action).any()
    files = {request.partition("/resolve/")[2] for request in stand_in.requests if "/resolve/" in request}
    assert files == {f"{newest}/{hub.WEIGHTS}"}


def test_a_pinned_commit_stays_the_same_and_is_kept(stand_in, caplog):
    pinned = stand_in.commit("me/pole", {hub.WEIGHTS: STORED.read_bytes()})
    stand_in.commit("me/pole", {hub.WEIGHTS: other_weights()})
    observations = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    expected = minerva_acme.load_policy(STORED).batch(observations).action
    for _ in range(2):
        policy = minerva_acme.load_policy(f"hf:me/pole@{pinned}")
        np.testing.assert_array_equal(policy.batch(observations).action, expected)
    assert not caplog.text
    assert not [request for request in stand_in.requests if "/api/" in request]  # nothing was resolved
    assert sum(request.startswith("GET") for request in stand_in.requests) == 1
    assert policies.find(f"hf:me/pole@{pinned}").description.environment == "CartPole-v1"


def test_code_that_weights_of_the_hub_name_is_not_imported(stand_in, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("import pathlib; pathlib.Path(__file__).with_name('ran').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    for repository, named in {
        "me/agent": {"agent": "evil:Builder", "config": "evil:Config"},
        "me/environment": {"environment": "evil:Environment-v0", "environment_specs": {}},
        "me/factory": {"environment_factory": "evil:make", "environment_specs": {}},
    }.items():
        stand_in.commit(repository, {hub.WEIGHTS: other_weights(**named)})
        with pytest.raises(ValueError, match=r"`evil:.*allow that with --import-code"):
            minerva_acme.load_policy(f"hf:{repository}")
    assert "evil" not in sys.modules
    assert not (tmp_path / "ran").exists()
    with pytest.raises((AttributeError, ValueError)):
        minerva_acme.load_policy("hf:me/agent", import_code=True)
    assert (tmp_path / "ran").exists()  # the module would have run


@pytest.mark.parametrize("content", [b"\x80\x04}.", STORED.read_bytes()[:-8]], ids=["pickle", "cut"])
def test_another_file_under_the_name_of_the_weights_is_refused(stand_in, content):
    stand_in.commit("me/pole", {hub.WEIGHTS: content})
    with pytest.raises(ValueError, match=r"policy\.safetensors must be a complete safetensors file"):
        minerva_acme.load_policy("hf:me/pole")


def test_what_is_not_there_is_a_sentence(stand_in):
    stand_in.commit("me/pole", {"model.bin": b"x"})
    for name in ("hf:me/nothing", "hf:me/pole", "hf:me/pole@" + 40 * "0"):
        with pytest.raises(ValueError, match=f"Could not read {name}.*Check the name and the connection"):
            minerva_acme.load_policy(name)


def test_only_a_name_with_the_prefix_asks_the_hub(stand_in):
    stand_in.commit("me/pole", {hub.WEIGHTS: STORED.read_bytes()})
    for name in ("me/pole", "./hf:me/pole", "HF:me/pole"):
        with pytest.raises(ValueError, match="nothing is there|There are no weights"):
            minerva_acme.load_policy(name)
    minerva_acme.load_policy("ppo_default:CartPole-v1")
    assert stand_in.requests == []


def test_an_existing_path_comes_first(stand_in, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hf:me").mkdir()
    (tmp_path / "hf:me" / "pole").write_bytes(STORED.read_bytes())
    minerva_acme.load_policy("hf:me/pole")
    assert stand_in.requests == []


def test_without_the_extra_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        ValueError, match=r"To read hf:me/pole, you need 'huggingface_hub'.*minerva-acme\[hub\]"
    ):
        minerva_acme.load_policy("hf:me/pole")


def test_an_upload_is_one_commit_of_the_named_files(stand_in, tmp_path):
    for name, content in (("a.json", b"{}"), ("b.md", b"# b"), ("secret", b"x")):
        (tmp_path / name).write_bytes(content)
    files = [tmp_path / "a.json", tmp_path / "b.md"]
    name = hub.upload(files, hub.Name("me/new", None), message="PPO on CartPole-v1", private=True)
    ((commit, message, held),) = stand_in.commits["me/new"]
    assert (name, message) == (hub.Name("me/new", commit), "PPO on CartPole-v1")
    assert held == {"a.json": b"{}", "b.md": b"# b"}
    assert stand_in.private == {"me/new": True}
    (tmp_path / "a.json").write_bytes(b"[]")
    again = hub.upload(files, hub.Name("me/new", None), message="again")
    assert again.revision == stand_in.commits["me/new"][1][0] != commit
    stand_in.token = "another"
    with pytest.raises(ValueError, match="Could not upload to hf:me/new.*log in with `hf auth login`"):
        hub.upload(files, hub.Name("me/new", None), message="without a token")
