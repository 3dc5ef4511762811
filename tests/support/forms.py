"""A form of a page, read as a browser reads it."""

from html.parser import HTMLParser

Attributes = list[tuple[str, str | None]]


class _FormReader(HTMLParser):
    """Collects the fields of the form with an action.

    Args:
        action: the address that it is sent to.
    """

    def __init__(self, action: str) -> None:
        super().__init__()
        self._action = action
        self._is_inside = False
        self._select: str | None = None
        self._textarea: str | None = None
        self.was_found = False
        self.fields: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._is_inside = given.get("action") == self._action and not self.was_found
            self.was_found = self.was_found or self._is_inside
        elif not self._is_inside:
            return
        elif tag == "input" and (given.get("type") not in ("checkbox", "radio") or "checked" in given):
            self._add(given["name"], given.get("value", "on"))
        elif tag == "select":
            self._select = given["name"]
            self.fields.setdefault(self._select, [])
        elif tag == "option" and self._select is not None and "selected" in given:
            self._add(self._select, given.get("value", ""))
        elif tag == "textarea":
            self._textarea = given["name"]
            self._add(self._textarea, "")

    def handle_data(self, data: str) -> None:
        if self._textarea is not None:
            self.fields[self._textarea][-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._is_inside = False
        elif tag == "select":
            self._select = None
        elif tag == "textarea":
            self._textarea = None

    def _add(self, name: str, value: str) -> None:
        # Browsers send each end of a line as two characters (HTML, "constructing the entry list").
        self.fields.setdefault(name, []).append(value.replace("\n", "\r\n"))


def form_in(page: str, action: str) -> dict[str, list[str]]:
    """Read the values of the first form of a page that is sent to an address."""
    reader = _FormReader(action)
    reader.feed(page)
    assert reader.was_found, f"no form is sent to {action}"
    return {name: values for name, values in reader.fields.items() if values}
