"""Environment server: browser environments for other trainers, over OpenEnv."""
