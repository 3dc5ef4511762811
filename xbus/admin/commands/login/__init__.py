"""The commands about passwords, sessions and API tokens."""
