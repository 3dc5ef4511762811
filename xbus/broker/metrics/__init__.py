"""Serves the figures of a process of the broker by HTTP: ``/metrics``, ``/healthz`` and ``/readyz``.

Nothing here is on the way of an envelope. Front, back and journal count by themselves; the modules ``of_process``,
``of_front``, ``of_back`` and ``of_journal`` read those figures when somebody asks. ``exposition`` alone knows
prometheus_client. The parts and the daemon import this package.
"""
