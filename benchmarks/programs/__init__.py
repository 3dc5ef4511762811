"""What runs in processes of its own during a measurement."""
