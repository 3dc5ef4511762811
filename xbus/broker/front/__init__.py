"""The front takes envelopes from emitters: it checks each call, counts, and writes to the journal.

``verbs`` put it on the wire, ``front`` carries the calls out, ``envelopes`` holds what is open, ``replay`` repeats what
is sealed. It never reads the log to deliver, and never imports the back.
"""
