"""How the demo says that it failed."""


class DemoFailed(Exception):
    """Something is missing, wrong, or ended too early; the message says what, and where to look."""
