"""Arguments of environments as text."""

import pytest

from minerva_acme.runs import env_kwargs


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1e3", 1000.0),
        ("-2.5", -2.5),
        ("true", True),
        ("False", False),
        ("None", None),
        ("[1, [2]]", (1, (2,))),
        ("(1, 2)", (1, 2)),
        ("1,2", (1, 2)),
        ("{a = 1}", {"a": 1}),
        ("small", "small"),
        ("", ""),
        ("'5'", "5"),
        ("a=b", "a=b"),
        ("2024-01-01", "2024-01-01"),
        ("{1: 2}", "{1: 2}"),
        ("#fff", "#fff"),
    ],
)
def test_a_value_is_toml_or_a_literal_of_python_and_otherwise_a_string(text, value):
    found = env_kwargs.read([f"x={text}"])["x"]
    assert (found, type(found)) == (value, type(value))


def test_what_is_written_is_read_back():
    values = {"a": 1, "b": (1, ("x",)), "c": "1", "d": 'q"\\n\n', "e": None, "f": True, "g": {"h": 0.1}}
    assert env_kwargs.read(env_kwargs.write(values)) == values


@pytest.mark.parametrize(
    ("word", "message"),
    [("gravity", "must be KEY=VALUE"), ("1=2", "must be KEY=VALUE"), ("seed=1", "must not set the seed")],
)
def test_other_words_are_refused(word, message):
    with pytest.raises(ValueError, match=message):
        env_kwargs.read([word])


def test_results_name_an_environment_with_its_arguments():
    assert env_kwargs.with_settings("a:B", {}) == "a:B"
    assert env_kwargs.with_settings("a:B", {"y": 2, "x": "s"}) == "a:B,x=s,y=2"
