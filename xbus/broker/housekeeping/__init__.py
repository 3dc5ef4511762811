"""What keeps the broker going for years: limits, time-outs of envelopes, and the removal of what nobody needs."""
