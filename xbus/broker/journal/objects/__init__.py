"""Object stores: data of large segments lies there, by its hash, and segments say so.

A store never knows who refers to an object. The journal does: an object is durable before the commit that refers to it.
It is removed when no segment refers to it any more. Recipients never notice. All reads of segments go through
``reading``. Front and back write through ``xbus.broker.journal.journal``.

Face: ``claiming``, ``opening``, ``reading``, ``removal``, ``stores`` and ``stowing``.
"""
