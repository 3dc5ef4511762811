"""From the items of an event to the items that come of them: what users write, and the pipeline around it."""
