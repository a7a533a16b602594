"""New tasks from failed ones: the generation prompt, its filters, its journal."""
