"""The largest counts that settings take: what lies above is a slip of the pen, and its plan would fill the memory."""

MAX_EPISODES = 1_000_000
MAX_CHAINS = 1_000
