"""The bus as it is just now, for all who look: one task takes a sample each few seconds, and tells open pages of it.

However many look, the journal is asked once. ``sampler`` asks, ``audience`` tells; the other modules make graph, plots
and the list of what needs a decision of what was found, and are pure.
"""
