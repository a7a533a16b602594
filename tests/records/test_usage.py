"""Tokens that servers say they used, in the forms in which they say it."""

from tests.tables import each
from webgym_cli.records.usage import TokenUsage, read_usage


@each(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}, (7, 0, 2)),
        ({"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}, (7, 4, 2)),
        ({"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": None}, (7, 0, 2)),
        # xAI's and Gemini's reasoning stands in the total alone
        ({"prompt_tokens": 13, "completion_tokens": 1, "total_tokens": 399}, (13, 0, 386)),
        ({"prompt_tokens": 21, "completion_tokens": 0, "total_tokens": 81}, (21, 0, 60)),
        ({"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 9}}, (7, 7, 0)),
        ({"total_tokens": 9}, (0, 0, 0)),
        ({"prompt_tokens": -7, "completion_tokens": "2", "total_tokens": True}, (0, 0, 0)),
        ([], (0, 0, 0)),
        (None, (0, 0, 0)),
    ],
)
def test_what_a_server_says_is_read_and_nothing_is_made_up(usage, counts):
    prompt, cached, completion = counts
    assert read_usage({"usage": usage}) == TokenUsage(prompt=prompt, cached=cached, completion=completion)
