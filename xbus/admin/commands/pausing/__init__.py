"""``xbus pause``, ``resume`` and ``drain``: nothing new begins for a while, and nothing is lost."""
