"""Items of JSON, or of what looks so."""

UNCERTAIN = [
    *(b"", b" ", b"no json", b"[]", b'[{"id": 1}]', b"1", b"null", b'"{}"', b"{", b"}", b'{"id": 1', b'{"id": 1}}'),
    *(b' {"id": 1}', b'{"id": 1}\n', b'{"id": 1} {"id": 2}', b'{"id": 1}{"id": 2}', b'{"id": 1}\n{"id": 2}'),
    *(b'{"id": 1, "id": 2}', b'{"id": "1"}', b'{"id": 1.0}', b'{"id": 1e2}', b'{"id": 9223372036854775808}'),
    *(b'{"id": true}', b'{"id": [1]}', b'{"name": 1}', b'{"name": {"x": 1}}', b'{"name": "\t"}', b'{"name": "\xff"}'),
    *(b'{"name": "\\ud800"}', b'{"rate": NaN}', b'{"rate": Infinity}', b'{"rate": "1"}', b'{"rate": 1e400}'),
    *(b'{"x": Inf}', b'{"x": [-Inf]}', b'{"x": [1,\n-NaN ]}'),
    *(b'{"x": %s}' % (b"1" * 1_001), b'{"rate": 0.%s}' % (b"1" * 1_000)),
    *(b'{"x": %s%s}' % (b"[" * 1_001, b"]" * 1_001), b'{"%s": 1}' % (b"n" * 50_001), b'{"rate": -0}'),
    *(b'{"id": 01}', b"{'id': 1}", b'{"id": 1,}', b'{"id": 1 /* one */}', b'{"x": nul}', b'{"x": [1,2}'),
]
"""What not every parser makes the same of, Spark's and others: damaged, doubled, too large, of another type."""
