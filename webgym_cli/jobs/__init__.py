"""Child processes that never outlive this process."""
