"""The families of commands of ``xbus``, one module each; none does more than ask, call and tell."""
