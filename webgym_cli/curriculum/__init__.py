"""Task generation from failed tasks: prompts, filters and answer journal."""
