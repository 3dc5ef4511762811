"""Takes as many file descriptors as this process may have: each connection needs one."""

import resource


def raise_limit() -> int:
    """Raise the limit of open files to the hard limit, as the usual one is far below it.

    Returns:
        The new limit.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most
