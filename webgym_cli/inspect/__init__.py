"""The stage that looks after the buffer: what it holds, one episode, two iterations side by side, its images."""
