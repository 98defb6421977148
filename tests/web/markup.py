"""A strict reader of our own HTML: balanced tags, unique ids, and what the content security policy forbids."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
SVG_SELF_CLOSED = {"rect", "line", "path", "circle", "use"}


class Markup(HTMLParser):
    """Reads a document or fragment; `faults` says in words what is wrong."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.ids: list[str] = []
        self.refs: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.forms: list[dict[str, object]] = []
        self.words: list[str] = []
        self._inline_script = False
        self.feed(html)
        self.close()
        if self.open:
            self.faults.append(f"left open: {self.open}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look(tag, dict(attrs), [name for name, _ in attrs])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look(tag, dict(attrs), [name for name, _ in attrs])
        if tag not in VOID | SVG_SELF_CLOSED:
            self.faults.append(f"<{tag}/> closes nothing in HTML")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.faults.append(f"</{tag}> at {self.getpos()} closes {self.open[-1:]}")
        else:
            self.open.pop()
        if tag == "script":
            self._inline_script = False

    def handle_data(self, data: str) -> None:
        if "script" not in self.open:
            self.words.append(data)
        elif self._inline_script and data.strip():
            self.faults.append("inline script")

    def _look(self, tag: str, attrs: dict[str, str | None], names: list[str]) -> None:
        at = f"<{tag}> at {self.getpos()}"
        if len(names) != len(set(names)):
            self.faults.append(f"{at} has an attribute twice")
        self.faults += [f"{at} has {name}" for name in names if name == "style" or name.startswith(("on", "hx-on"))]
        if tag == "style":
            self.faults.append(f"{at} is an inline style sheet")
        if tag == "script" and "src" not in attrs:
            self._inline_script = attrs.get("type") != "application/json"
        if "id" in attrs:
            self.ids.append(attrs["id"] or "")
        for name in ("for", "aria-labelledby", "aria-describedby", "popovertarget", "form"):
            if attrs.get(name):
                self.refs.append((name, attrs[name] or ""))
        if "[" in (attrs.get("hx-trigger") or "") or (attrs.get("hx-vals") or "").startswith(("js:", "javascript:")):
            self.faults.append(f"{at} makes htmx evaluate script")
        if tag == "button" and "type" not in attrs:
            self.faults.append(f"{at} has no type")
        if tag == "form":
            self.forms.append({"method": (attrs.get("method") or "get").lower(), "fields": []})
        if tag in ("input", "select", "button") and attrs.get("name") and "form" in self.open:
            self.forms[-1]["fields"].append(attrs["name"])  # type: ignore[attr-defined]

    @property
    def text(self) -> str:
        """What a person reads, spaces folded."""
        return " ".join("".join(self.words).split())
