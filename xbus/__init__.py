"""Xbus, an enterprise service bus on ZeroMQ.

Programs import ``xbus.emitter`` to send and ``xbus.recipient`` to receive. An item flows through ``emitter``,
``broker.front``, ``broker.journal``, ``broker.back`` and ``recipient``, in this order.
"""
