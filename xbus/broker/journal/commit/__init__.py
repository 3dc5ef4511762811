"""Group commit: one thread owns the write connection and makes durable what front and back hand over.

``writer`` is the thread, ``committer`` the transaction, ``statements`` carries out each kind of write.
"""
