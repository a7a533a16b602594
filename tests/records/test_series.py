"""Whose results an episode's are."""

from tests.tables import each
from webgym_cli.records.series import name_series, name_served, name_version

SERVED = name_served("m", "http://a:1/v1")


@each(
    ("policy", "series"),
    [
        ("oracle", "demonstrations"),
        ("model_20260101_000000", "test"),
        ("Qwen/Qwen3-VL-8B-Instruct", "test"),
        ("/models/at http/x", "test"),
        (SERVED, f"test of {SERVED}"),
        (name_served("m", "https://a:443/v1"), "test of m at https://a:443/v1"),
    ],
)
def test_a_server_that_is_not_the_runs_has_a_series_of_its_own(policy, series):
    assert name_series(policy, "test") == series


def test_a_server_has_no_version_of_the_runs():
    assert (name_version("base", 0), name_version(SERVED, 0)) == ("0", SERVED)
