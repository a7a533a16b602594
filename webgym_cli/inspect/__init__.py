"""The stage that looks: what the buffer holds, one episode, two iterations side by side. It changes nothing."""
