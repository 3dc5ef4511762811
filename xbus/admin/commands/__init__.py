"""The families of commands of ``xbus``, one module each: they ask, call and tell."""
