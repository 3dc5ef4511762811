"""Items as columns and back: formats, rows of JSON and msgpack, Arrow batches, and errors that name the item."""
