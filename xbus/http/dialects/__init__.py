"""The dialects in which programs speak to the gateway: each has a table of operations, and answers by its own rules."""
