"""History is sent to a role again: counted and sent page by page, at a pace, and told to its operator."""
