"""Deals with the operating system: memory of the C library, entries of folders, and the service manager.

Nothing here knows the bus. Any package may import its modules.
"""
