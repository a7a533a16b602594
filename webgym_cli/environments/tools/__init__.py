"""Environment for questions that are answered with tool calls, without a browser."""
