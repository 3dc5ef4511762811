"""Writing to the bus from Spark: ``df.write.format("xbus")`` and ``df.writeStream.format("xbus")``.

Tasks stage their rows side by side (``staging``), and the driver sends what they staged, in order, as one envelope
(``sending``): it is all there, or nothing. ``writers`` has what Spark calls, ``options`` what users may say. It is an
emitter like any other and never touches the journal. The data source alone imports it.

Face: ``options``, ``writers``.
"""
