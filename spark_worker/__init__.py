"""Spark for the bus: a worker for large envelopes, a data source and sink, an archive and a true-up."""
