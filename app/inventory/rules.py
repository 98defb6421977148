"""Who may change the inventory, and how lists of nodes are read: two forms of CSV, every fault at once. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from app.inventory.facts import Kind
from app.inventory.slices import Layout, WrongLayout, read_layout
from app.kernel.actor import SYSTEM, Actor
from app.kernel.errors import Forbidden, Invalid, Reason

MAX_BYTES = 8 * 1024 * 1024
MAX_ROWS = 50_000
MAX_GPUS = 64
MAX_FAULTS = 50

LIST_FORM = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
"""The form of the public Alibaba v2023 node list. Rows without a GPU are left out."""
FULL_FORM = ("name", "kind", "gpus", "rack", "leaf", "nvlink", "power_watts", "cpu_milli", "memory_mib", "layout")
"""Our own. name, kind and gpus are needed, the others may be missing; power_watts is one GPU's, layout as in `slices`."""

_NEEDED = ("name", "kind", "gpus")
_OWN_WORDS = {"sn": "name", "gpu": "gpus", "model": "kind"}
_NODE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_LARGEST = 2**31 - 1
_NUMBERS = {"power_watts": (1, 20_000), "cpu_milli": (0, _LARGEST), "memory_mib": (0, _LARGEST)}


def may_operate(actor: Actor) -> None:
    """Raise `Forbidden` for whoever is not an operator, or uses a token that may not change what operators change."""
    if actor is SYSTEM:
        return
    if "operator" not in actor.platform_roles:
        raise Forbidden("not_operator", "Only the platform's operators change clusters and nodes.")
    if not actor.may("manage"):
        raise Forbidden("scope_missing", "This token may not change clusters and nodes. It needs the scope manage.")


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """What is wrong with one line (1 is the header) or, at line 0, with the whole file."""

    line: int
    column: str
    message: str


class NodesRefused(Invalid):
    """A list of nodes that cannot be taken; nothing was changed. `faults` are the first 50, `count` is of all."""

    def __init__(self, faults: Iterable[Fault], count: int | None = None) -> None:
        found = sorted(faults)
        self.count = count if count is not None else len(found)
        self.faults = tuple(found[:MAX_FAULTS])
        many = f"{self.count} faults" if self.count > 1 else "one fault"
        more = f" The first {len(self.faults)} are listed." if self.count > len(self.faults) else ""
        super().__init__(
            "nodes_refused",
            f"The list of nodes has {many}. Nothing was changed.{more}",
            tuple(
                Reason(
                    "node_line", f"Line {f.line}: {f.message}" if f.line else f.message, field=f.column, in_request=True
                )
                for f in self.faults
            ),
        )


@dataclass(frozen=True, slots=True)
class WantedNode:
    """A node as a list describes it; `kind` is a slug of the catalogue. None is not said, or said to be empty."""

    line: int
    name: str
    kind: str
    gpus: int
    rack: str | None = None
    leaf: str | None = None
    nvlink: str | None = None
    power_watts: int | None = None
    cpu_milli: int | None = None
    memory_mib: int | None = None
    layout: Layout = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeList:
    """A good list: its nodes in order, the columns it had (in our words), and how many lines had no GPU."""

    nodes: tuple[WantedNode, ...]
    columns: tuple[str, ...]
    skipped: int


def kind_words(kinds: Iterable[Kind]) -> dict[str, str]:
    """Every word for a kind, in lower case, with its slug: slug, name, aliases. Slices are no node's kind."""
    words: dict[str, str] = {}
    for kind in kinds:
        if kind.slice_of is not None:
            continue
        for word in (kind.slug, kind.name, *kind.aliases):
            words.setdefault(word.lower(), kind.slug)
    return words


def parse_nodes(text: str | bytes, words: Mapping[str, str], kinds: Mapping[str, Kind] | None = None) -> NodeList:
    """Read a list of nodes; `words` from `kind_words`, `kinds` by slug for how they can be cut. The header decides the
    form.

    Raises `NodesRefused` with all faults. Takes a byte order mark, either line end, quoted fields and empty lines.
    """
    rows = _rows(_decoded(text))
    header = next(rows, None)
    if header is None:
        raise NodesRefused([Fault(0, "", "The list is empty. Its first line names the columns.")])
    names, columns = _columns(header[1])
    reader = _Reader(names, columns, words, kinds or {})
    for line, cells in rows:
        reader.take(line, cells)
    if reader.count:
        raise NodesRefused(reader.faults, reader.count)
    if not reader.nodes:
        without = f" {reader.skipped} lines have no GPU." if reader.skipped else ""
        raise NodesRefused([Fault(0, "", f"The list names no node with a GPU.{without}")])
    return NodeList(tuple(reader.nodes), tuple(columns), reader.skipped)


def _decoded(text: str | bytes) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        sentence = f"The list has {size:,} bytes; {MAX_BYTES:,} is the most. Import it in parts."
        raise NodesRefused([Fault(0, "", sentence)])
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            line = text.count(b"\n", 0, error.start) + 1
            sentence = f"Byte {error.start + 1} is not UTF-8. Save the list as UTF-8 and import it again."
            raise NodesRefused([Fault(line, "", sentence)]) from None
    return text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")


def _rows(text: str) -> Iterable[tuple[int, list[str]]]:
    """Records with the line on which each begins; empty lines left out. Stops with `NodesRefused` where CSV ends."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begun, count = 1, 0
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            sentence = f"This is not CSV from here on ({error}). A quotation mark may be missing."
            raise NodesRefused([Fault(begun, "", sentence)]) from None
        if any(cell.strip() for cell in cells):
            count += 1
            if count > MAX_ROWS + 1:
                sentence = f"The list has more than {MAX_ROWS:,} nodes. Import it in parts."
                raise NodesRefused([Fault(begun, "", sentence)])
            yield begun, [cell.strip() for cell in cells]
        begun = reader.line_num + 1


def _columns(header: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The header's words as they stand, and in our own."""
    names = tuple(cell.lower() for cell in header)
    known = LIST_FORM if "sn" in names or "model" in names else FULL_FORM
    own = tuple(_OWN_WORDS.get(n, n) if known is LIST_FORM else n for n in names)
    faults = [
        Fault(1, header[i], f"There is no column “{header[i]}”. Columns are {','.join(known)}.")
        for i, name in enumerate(names)
        if name not in known
    ]
    faults += [Fault(1, n, f"The column “{n}” stands twice.") for n in sorted({n for n in names if names.count(n) > 1})]
    faults += [
        Fault(1, n, f"The column “{n}” is missing. Columns are {','.join(known)}.")
        for n in known
        if _OWN_WORDS.get(n, n) in _NEEDED and n not in names
    ]
    if faults:
        raise NodesRefused(faults)
    return names, own


class _Reader:
    """Lines in, nodes and faults out. `names` are the file's words for `columns`, used in messages."""

    def __init__(
        self, names: tuple[str, ...], columns: tuple[str, ...], words: Mapping[str, str], kinds: Mapping[str, Kind]
    ) -> None:
        self.columns, self.words, self.kinds = columns, words, kinds
        self.called = dict(zip(columns, names, strict=True))
        self.skips_empty = "sn" in names
        self.nodes: list[WantedNode] = []
        self.faults: list[Fault] = []
        self.count = self.skipped = 0
        self.lines: dict[str, int] = {}

    def take(self, line: int, cells: list[str]) -> None:
        before = self.count
        if len(cells) != len(self.columns):
            self._fault(line, None, f"{len(cells)} fields where the header has {len(self.columns)}.")
            return
        row = dict(zip(self.columns, cells, strict=True))
        name = self._name(line, row["name"])
        gpus = self._number(line, "gpus", row["gpus"], 0 if self.skips_empty else 1, MAX_GPUS)
        if self.skips_empty and gpus == 0 and self.count == before:
            self.skipped += 1
            return
        kind = self._kind(line, row["kind"], gpus)
        texts = {c: self._text(line, c, row[c]) for c in ("rack", "leaf", "nvlink") if c in row}
        numbers = {c: self._number(line, c, row[c], *_NUMBERS[c]) if row[c] else None for c in _NUMBERS if c in row}
        if self.count == before and gpus is not None:
            layout = self._layout(line, row.get("layout", ""), kind, gpus)
            self.nodes.append(WantedNode(line, name, kind, gpus, **texts, **numbers, layout=layout))

    def _name(self, line: int, text: str) -> str:
        if not text:
            self._fault(line, "name", "A node needs a name.")
        elif not _NODE_NAME.fullmatch(text):
            self._fault(
                line, "name", f"“{_shown(text)}” is no name of a node: letters, digits, dots, dashes, underlines."
            )
        elif (first := self.lines.setdefault(text, line)) != line:
            self._fault(line, "name", f"{text} stands in line {first} already.")
        return text

    def _kind(self, line: int, text: str, gpus: int | None) -> str:
        slug = self.words.get(text.lower())
        if slug is None:
            if not text:
                of = f" with {gpus} GPUs" if gpus else ""
                self._fault(line, "kind", f"A node{of} needs a kind.")
            else:
                # comparing is slow, and the faults beyond the first are only counted
                close = get_close_matches(text.lower(), self.words, n=6, cutoff=0.5) if self.count < MAX_FAULTS else ()
                near = dict.fromkeys(self.words[word] for word in close)
                help_ = f" Near to it: {', '.join(list(near)[:3])}." if near else " GET /api/v1/kinds lists all."
                self._fault(line, "kind", f"“{_shown(text)}” is no kind of the catalogue.{help_}")
            return ""
        return slug

    def _layout(self, line: int, text: str, slug: str, gpus: int) -> Layout:
        if not text or slug not in self.kinds:
            return {}
        try:
            return read_layout(text, gpus, self.kinds[slug])
        except WrongLayout as wrong:
            self._fault(line, "layout", str(wrong))
            return {}

    def _text(self, line: int, column: str, text: str) -> str | None:
        if len(text) > 63 or not text.isprintable():
            self._fault(line, column, "At most 63 printable characters.")
        return text or None

    def _number(self, line: int, column: str, text: str, least: int, most: int) -> int | None:
        if text.isascii() and text.isdigit() and len(text) <= 12 and least <= int(text) <= most:
            return int(text)
        self._fault(line, column, f"A whole number from {least:,} to {most:,}, not “{_shown(text)}”.")
        return None

    def _fault(self, line: int, column: str | None, message: str) -> None:
        self.count += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(Fault(line, self.called[column] if column else "", message))


def _shown(text: str) -> str:
    """What was written, kept short and free of control characters."""
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return plain if len(plain) <= 40 else plain[:39] + "…"
