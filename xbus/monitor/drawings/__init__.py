"""Drawings as values: the bus as a graph, and figures over time as lines. All of it is pure.

A drawing has positions, paths and texts; templates make SVG of it, where every text is escaped. Colours come from
classes alone, so that the style sheet decides about them, light and dark.
"""
