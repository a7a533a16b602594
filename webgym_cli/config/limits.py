"""Upper bounds of counts in the settings. A larger value is a typing error, and its plan would exhaust the memory."""

MAX_EPISODES = 1_000_000
MAX_CHAINS = 1_000
