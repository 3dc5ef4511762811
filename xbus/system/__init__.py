"""Deals with the operating system for the programs of the bus: memory of the C library, and the service manager.

Nothing here knows the bus. Any package may import its modules.
"""
