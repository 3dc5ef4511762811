"""Writing to the bus from Spark: ``df.write.format("xbus")`` and ``df.writeStream.format("xbus")``.

Tasks stage their rows side by side (``staging``), and the driver sends what they staged, in order, as one envelope
(``sending``): it is all there, or nothing. ``batch`` and ``stream`` are what Spark calls.
"""
