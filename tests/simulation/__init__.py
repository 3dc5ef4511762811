"""The bus in virtual time: front, back and the SDK's recipients as they are, over a journal and a network that take
seeded random times and fail on purpose. The same seed gives the same run."""
