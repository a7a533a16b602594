"""What a run came to: a page that needs no other file, and two runs side by side."""
