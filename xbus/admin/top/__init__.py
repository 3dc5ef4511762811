"""Shows the bus as it works: ``rates`` counts per second, ``overview`` writes one look as lines. Both are pure."""
