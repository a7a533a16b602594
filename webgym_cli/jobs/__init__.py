"""Child processes that never outlive us."""
