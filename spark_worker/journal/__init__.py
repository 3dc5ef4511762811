"""The journal as executors read and write it: items in, outputs back, part by part."""
