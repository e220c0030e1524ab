import pytest

from minerva_acme import results
from minerva_acme.results import Row

HEAD = "exp_name,env_name,seed,metric,env_step,value\n"
ROWS = [
    Row("ppo_default", "CartPole-v1", 0, "final_return", 2000, 500.0),
    Row("ppo_default", "CartPole-v1", 0, "avg_return", 1000, -0.001234567),
    Row("ppo_default", "Acrobot-v1", 10, "avg_return", 1000, 106030.3),
    Row("ppo_default", "Acrobot-v1", 9, "avg_return", 1000, 1e-7),
]


def test_what_is_written_is_read_again_sorted_by_environment_seed_metric_and_step():
    text = results.format_rows(ROWS)
    assert text.startswith(HEAD)
    assert results.parse_rows(text, "rows.csv") == [ROWS[3], ROWS[2], ROWS[1], ROWS[0]]


def test_files_of_others_may_have_other_orders_and_steps_with_a_point():
    text = "seed,exp_name,value,env_name,env_step,metric\n3,simba,7.5,dog-run,50000.0,avg_return\n"
    assert results.parse_rows(text, "x") == [Row("simba", "dog-run", 3, "avg_return", 50_000, 7.5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.csv must have the columns exp_name,.*,value, got none"),
        ("exp_name,env_name\n", "must have the columns exp_name,.*, got exp_name,env_name"),
        (HEAD + "a,b,0,avg_return,5\n", "x.csv, line 2 must have 6 cells"),
        (HEAD + "a,b,0,avg_return,5,1,2\n", "x.csv, line 2 must have 6 cells"),
        (HEAD + ",b,0,avg_return,5,1\n", "line 2: `exp_name` must not be empty"),
        (HEAD + "a,b,-1,avg_return,5,1\n", "line 2: `seed` must be a whole number >= 0, got '-1'"),
        (HEAD + "a,b,0,avg_return,5.5,1\n", "line 2: `env_step` must be a whole number >= 0, got '5.5'"),
        (HEAD + "a,b,0,avg_return,inf,1\n", "line 2: `env_step` must be a whole number >= 0, got 'inf'"),
        (HEAD + "a,b,0,avg_return,5,nan\n", "line 2: `value` must be a finite number of .*, got 'nan'"),
        (HEAD + "a,b,0,avg_return,5,-1e308\n", "must be .* of magnitude at most 1e\\+30, got '-1e308'"),
        (HEAD + "a,b,0,m,5,1\na,b,0,m,5,2\n", "line 3: m of a on b, seed 0, at step 5 is given twice"),
        (HEAD + 'a,"b"c,0,m,5,1\n', "x.csv, after line 1, must be CSV"),
    ],
)
def test_a_file_that_is_not_of_rows_is_refused_by_its_line(text, message):
    with pytest.raises(ValueError, match=message):
        results.parse_rows(text, "x.csv")
