"""Sites that need a login or a reset: accounts, sessions, scheduling, for every environment with pages.

`setup` and `expert` make a set-up function and an expert of a site.
"""

from webgym_cli.environments.sites.site_expert import ExpertPage, expert
from webgym_cli.environments.sites.site_setup import SetupContext, setup

__all__ = ["ExpertPage", "SetupContext", "expert", "setup"]
