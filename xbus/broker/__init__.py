"""The broker: the front takes envelopes in, the journal keeps them, the back delivers them.

``cli`` starts the ``daemon``, which starts the ``parts``: the front and the back, each possibly in a process of its
own. Front and back meet in the journal only. Emitters and recipients never import this package. Its libraries come
with the extra ``broker``.
"""

from xbus import extras

extras.require("xbus.broker", "broker", extras.BROKER)
