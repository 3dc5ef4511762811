"""True-up: a source's data set beside what the bus carried of it."""
