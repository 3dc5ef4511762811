"""The recipients that are registered now: calls to them, who is free, who is slow, and who fails at everything.

It knows nothing of envelopes beyond what a call carries. Runs and everything above them import it; it imports only
the log.
"""
