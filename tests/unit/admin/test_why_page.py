"""``docs/why.md`` explains each code of ``xbus why``, once."""

import re
from collections import Counter
from pathlib import Path

from xbus.admin.why.findings import Code

PAGE = Path(__file__).parents[3] / "docs" / "why.md"


def test_the_page_explains_each_code_once() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", PAGE.read_text(encoding="utf-8").partition("## Codes\n")[2], re.MULTILINE)
    assert Counter(code for row in rows for code in re.findall(r"`(\w+)`", row)) == Counter(Code)
