"""Upper bounds of counts in the settings. A larger value is a typing error, and its plan would exhaust the memory."""

MAX_EPISODES = 1_000_000
MAX_CHAINS = 1_000
MAX_ITERATIONS = 1_000_000
# Calls in one response; one with more is an invalid action.
MAX_TOOL_CALLS = 16
