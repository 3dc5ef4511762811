"""Shared by the programs that serve HTTP: the monitor and the gateway.

It opens ports and describes errors. It never answers a request, and knows neither pages nor verbs.
"""
