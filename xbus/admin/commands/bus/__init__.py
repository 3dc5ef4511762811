"""The bus as a file: ``xbus apply``, ``xbus edit`` and ``xbus export``."""
