"""Random bytes become messages and calls, and each must get an answer that it deserves: ``make fuzz``.

``tape`` turns bytes into choices, ``values`` makes arguments of them, and ``codec`` and ``front`` are the two targets.
A target is a function of bytes, so libFuzzer drives it through atheris, and a unit test drives it without.
"""
