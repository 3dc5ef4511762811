"""Makes pages of templates, in which every text of others is harmless, and moments look the same everywhere."""

import hashlib
import json
import shlex
from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from urllib.parse import quote, urlencode

import jinja2
from fastapi.responses import HTMLResponse
from markupsafe import Markup, escape

from xbus.admin.output import age, counted, moment
from xbus.broker.journal.people import Right
from xbus.ending import printable
from xbus.extras import installed_version
from xbus.monitor.people import Visitor
from xbus.states import TONE_OF

PACKAGE = "xbus.monitor"


class Renderer:
    """The templates of the monitor."""

    def __init__(self) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader(PACKAGE),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=_harmless,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            moment=moment,
            counted=counted,
            short=shortened,
            tone=tone,
            command=shlex.join,
            json=_json,
            segment=_segment,
            exactly=_exactly,
        )
        self._environment.globals.update(version=installed_version(), assets=_assets_version(), link=link)

    def render(self, template: str, facts: dict[str, object]) -> str:
        """Make the text of a template."""
        return self._environment.get_template(template).render(facts)


class MonitorPage:
    """The answer to one request of one visitor.

    Args:
        renderer: has the templates.
        now: the moment, for ages.
        visitor: the person; None before the log-in.
        path: the path of the request, which the menu shows as the present one.
        is_fragment: whether only the part of the page is wanted that changes.
    """

    def __init__(
        self, renderer: Renderer, now: datetime, visitor: Visitor | None, path: str, *, is_fragment: bool = False
    ) -> None:
        self._renderer = renderer
        self._now = now
        self._visitor = visitor
        self._path = path
        self.is_fragment = is_fragment

    def __call__(self, template: str, *, status: int = 200, **facts: object) -> HTMLResponse:
        """Make the page of a template.

        Args:
            status: the status of the answer.
            facts: the variables of the template.
        """
        now = self._now
        given = {
            "visitor": self._visitor,
            "Right": Right,
            "path": self._path,
            "frame": "fragment.html" if self.is_fragment else "page.html",
            "now": now,
            "age": lambda at: age(at, now),
            "until": lambda at: f"in {age(now, at)}" if at > now else "now",
            **facts,
        }
        return HTMLResponse(self._renderer.render(template, given), status)


def tone(state: object) -> str:
    """Give the tone of a state; plain for others."""
    return TONE_OF.get(str(state), "plain")


def shortened(text: object, letters: int = 40) -> str:
    """Cut a text where it is long."""
    told = str(text)
    return told if len(told) <= letters else told[: letters - 1] + "…"


def link(path: str, **parameters: object) -> str:
    """Write an address of the monitor with parameters; those that are None or empty are left out."""
    pairs: list[tuple[str, object]] = []
    for name, value in parameters.items():
        values: Sequence[object] = value if isinstance(value, list | tuple) else [value]
        pairs += [(name, each) for each in values if each not in (None, "")]
    return f"{path}?{urlencode(pairs)}" if pairs else path


def local(address: str) -> str:
    """Give an address of the monitor itself; a link of others leads nowhere else."""
    islocal = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if islocal and address.isprintable() else "/"


def _segment(name: object) -> str:
    """Write a name as one part of a path."""
    return quote(str(name), safe="")


def _harmless(value: object) -> object:
    """Write out what browsers obey without showing it, such as marks of direction; None is nothing."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else printable(str(value))


def _exactly(text: object) -> Markup:
    """Write a text as it is, for a field whose content comes back: nothing of it may change on the way.

    In a text area it stands on a line of its own, since a browser takes the first new line away.
    """
    return escape(text)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _assets_version() -> str:
    """Name the state of the assets, so that browsers keep them until they change."""
    digest = hashlib.sha256()
    for asset in sorted((files(PACKAGE) / "assets").iterdir(), key=lambda each: each.name):
        digest.update(asset.read_bytes())
    return digest.hexdigest()[:12]
