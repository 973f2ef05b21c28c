"""MkDocs hooks for the pages of wick, in addition to mkdocs.yml.

- The reference is generated from the source when the site is built: see reference.py.
- A link to a project file that is not a page, such as an example, leads to a page that shows the file.
- A `text output` block is the output of the code block before it.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "scripts"))

import reference  # noqa: E402  # it stands beside this file

FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
SHOWN = "project"  # the folder of the site that shows files of the project
ALWAYS = ("examples/README.md", "CHANGELOG.md", "CONTRIBUTING.md")
# Pages that readers of the site do not search for: records of the project and its source. Examples are searched.
UNSEARCHED = ("decisions/", f"{SHOWN}/", "heart.md", "promises.md", "writing.md")
BOOSTS = {  # weights of search results, by the beginning of the path; the first that fits
    "how-to/stream-to-browser.md": 3.0,  # the page for "streaming", before the chat backend that also streams
    "guide/threads.md": 1.6,  # the "memory" of other frameworks
    "how-to/": 2.0,
    "reference/": 0.3,
}
LEXERS = {".py": "python", ".sh": "sh", ".js": "js", ".go": "go", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Every decision is in the menu, and pages that are not there yet are left out of it."""
    docs = Path(config.docs_dir)
    records = [path.relative_to(docs).as_posix() for path in sorted((docs / "decisions").glob("[0-9]*.md"))]
    nav = [{"Decisions": [*part["Decisions"], *records]} if "Decisions" in part else part for part in config.nav or []]
    config.nav = _there(nav, docs, {"reference/index.md", *(f"reference/{name}" for name in reference.PAGES)})
    return config


def _there(part: Any, docs: Path, made: set[str]) -> Any:
    if isinstance(part, list):
        return [found for one in part if (found := _there(one, docs, made))]
    if isinstance(part, dict):
        kept = {title: _there(one, docs, made) for title, one in part.items()}
        return {title: one for title, one in kept.items() if one}
    return part if part.startswith(f"{SHOWN}/") or part in made or (docs / part).exists() else None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference, and every file that a page links to."""
    for name, text in reference.pages().items():
        files.append(File.generated(config, f"reference/{name}", content=text))
    pages = [file.src_uri for file in files.documentation_pages()]
    todo = [*ALWAYS, *(out for uri in pages for out in _outside(f"docs/{uri}", files.src_uris[uri].content_string))]
    shown = set[str]()
    while todo:
        path = todo.pop()
        if path in shown or not (ROOT / path).is_file():
            continue
        shown.add(path)
        text = _shown(path)
        todo += _outside(path, text) if path.endswith(".md") else []
        files.append(File.generated(config, _place(path), content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as the site has them, and the page's place among search results."""
    source = _source(page.file.src_uri)
    page.meta.setdefault("search", _search_settings(page.file.src_uri))

    def moved(found: re.Match[str]) -> str:
        target = _target(source, found[2])
        if target is None or (source.startswith("docs/") and target.startswith("docs/")):
            return found[0]
        place = posixpath.relpath(_place(target), posixpath.dirname(page.file.src_uri) or ".")
        return f"{found[1]}{place}{found[3]}"

    return _prose(markdown, lambda text: LINK.sub(moved, text)).replace("```text output\n", '```text title="prints"\n')


def _search_settings(uri: str) -> dict[str, bool | float]:
    """Return the `search` settings of a page, which its front matter can override."""
    if uri.startswith(UNSEARCHED) and not uri.startswith(f"{SHOWN}/examples/"):
        return {"exclude": True}
    return {"boost": next((boost for folder, boost in BOOSTS.items() if uri.startswith(folder)), 1.0)}


def _prose(text: str, change: Any) -> str:
    """The text, changed where it is no code."""
    done, at = "", 0
    for fence in FENCE.finditer(text):
        done += change(text[at : fence.start()]) + fence[0]
        at = fence.end()
    return str(done + change(text[at:]))


def _outside(source: str, text: str) -> list[str]:
    """Return the project files that a page links to and that are not pages."""
    targets = [_target(source, found[2]) for found in LINK.finditer(FENCE.sub("", text))]
    return [target for target in targets if target and not target.startswith("docs/") and target != "README.md"]


def _target(source: str, link: str) -> str | None:
    """Return the path in the project of a link, or None for a URL."""
    if re.match(r"[a-z]+:", link):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _place(path: str) -> str:
    """Return the path of a project file in the site."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"{SHOWN}/{path}" if path.endswith(".md") else f"{SHOWN}/{path}.md"


def _source(uri: str) -> str:
    """Return the path of a page of the site in the project."""
    return uri.removeprefix(f"{SHOWN}/") if uri.startswith(f"{SHOWN}/") else f"docs/{uri}"


def _shown(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n````{LEXERS.get(Path(path).suffix, 'text')}\n{text}\n````\n"
