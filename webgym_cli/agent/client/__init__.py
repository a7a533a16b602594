"""Requests to policy servers: one server, several, and the gate that stops them."""
