"""The page on benchmarks: ``python -m benchmarks.report FIGURES FOLDER``, from figures that runs have kept.

It measures nothing, so that it takes no time and writes the same for the same figures.
"""
