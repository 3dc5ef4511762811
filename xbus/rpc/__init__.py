"""The wire: frames, codec, dispatch of verbs, server and client. Only this package imports zmq.

It knows no verb by name. Emitters, recipients, front and back all stand on it.
"""
