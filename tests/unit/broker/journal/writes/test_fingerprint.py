"""Failures of one trouble have one fingerprint, whatever varies in their messages."""

import pytest

from xbus.broker.journal.writes.fingerprint import KEPT_LETTERS, fingerprint, is_fingerprint, pattern_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no client 17", "no client 4,711.50"),
        ("no client -3", "no client +12"),
        ("line 12:7 is bad", "line 4:123 is bad"),
        ("items 1, 2, 3 are bad", "items 7 are bad"),
        ("0190f0aa-1111-7111-8111-000000000001 is gone", "0190F0AA-2222-7111-8111-00000000000F is gone"),
        ("order A-1023-B is open", "order ZX-9 is open"),
        ("hash deadbeef", "hash 0badcafe00"),
        ("address 0x7f3a", "address 0x1"),
        ("no article 'a b'", "no article 'it''s'"),
        ("can't read 'x's thing'", "can't read 'y'"),
        ('no article "a \\"b\\" c"', 'no article "x"'),
        ("no article “ä”", "no article “b c”"),
        ("bytes b'\\x00' are bad", "bytes b'abc' are bad"),
        ("on 2026-11-23", "on 23.11.2026"),
        ("at 2026-11-23T18:22:05.123+01:00", "at 2026-11-23 18:22"),
        ("at 23 Nov 2026", "at 2026-11-23"),
        ("no file /srv/in/a.csv", "no file ../b"),
        ("no file C:\\in\\a.csv", "no file ~/b.csv"),
        ("no answer of https://a.example/b?c=d", "no answer of tcp://10.0.0.1:4891"),
        ("host 10.0.0.1:8080 is down", "host 192.168.1.2:80 is down"),
        ("KeyError: 'a'\n[SQL: SELECT 1]", "  KeyError: 'b' "),
        ("cut 'a" + "a" * 9000, "cut 'b'"),
    ],
)
def test_what_varies_does_not_count(one: str, other: str) -> None:
    assert pattern_of(one) == pattern_of(other)
    assert fingerprint(1, "refused", one) == fingerprint(1, "refused", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no client 17", "no article 17"),
        ("line 3: no name", "line 3: no date"),
        ("and/or", "and"),
        ("'a' is missing", "'a' is unknown"),
        ("can't read", "can't write"),
        ("face is bad", "cafe is bad"),
    ],
)
def test_words_count(one: str, other: str) -> None:
    assert pattern_of(one) != pattern_of(other)


def test_role_and_code_count() -> None:
    found = {
        fingerprint(role_id, code, "no client 17") for role_id in (None, 1, 17) for code in ("refused", "timed_out")
    }
    assert len(found) == 6
    assert all(map(is_fingerprint, found))


def test_a_fingerprint_stays_what_it_was() -> None:
    """The rows of a journal have it."""
    assert fingerprint(3, "refused", "no client 17") == "61dab8b03694ee5a"


@pytest.mark.parametrize(
    "text", ["", "62B5E4BB2CA1B1F4", "62b5e4bb2ca1b1f4\n", "62b5e4bb2ca1b1f", "\x00" * 16, "é" * 16]
)
def test_other_texts_are_none(text: str) -> None:
    assert not is_fingerprint(text)


@pytest.mark.parametrize(
    "part",
    [
        *(
            "'",
            '"',
            "'a",
            "'a ",
            '"\\',
            "' '",
            "a",
            "a-",
            "-",
            "~",
            "~-",
            "/",
            "/a",
            "./",
            "C:\\",
            "1",
            "1.",
            "1a",
            "a.",
        ),
        *(
            "Jan ",
            "1 Jan ",
            "a://",
            "a+",
            "`a",
            "“a",
            "«",
            "#",
            "# ",
            " ",
            "_",
            "é",
            '"…" ',
            "\x00",
            "\ud800",
            "\u202e",
        ),
    ],
)
def test_hostile_messages_are_read_to_the_end(part: str) -> None:
    """Time that doubled with each letter would never end here."""
    assert len(pattern_of(part * 100_000)) <= KEPT_LETTERS
    assert is_fingerprint(fingerprint(1, "refused", part * 10_000 + "!"))
