"""Print figures about the language and the shape of wick's source, beside those of other packages.

    python scripts/language_figures.py                      wick, and starlette, httpx, httpx2, pluggy where installed
    python scripts/language_figures.py src/wick/server      one folder
    python scripts/language_figures.py tests src/wick       the tests beside the source; tests are left out of names

The figures are signs, not goals. Words are counted in docstrings and comments. A participle counts as bare if it is
the whole name of a function ("told", "kept"); a name is one word if it has no underscore inside.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

OTHERS = ("starlette", "httpx", "httpx2", "pluggy")
IRREGULAR = (
    "told said kept made begun heard gone done known shown taken given left met meant put held sent seen found built "
    "written read set cut lost paid understood come stood spent run brought thought caught bound drawn thrown asked"
).split()
NOT_PARTICIPLES = {"read", "set", "run", "put", "cut", "feed", "need", "speed", "embed", "shed", "red"}
PRONOUNS = re.compile(r"\b(?:who|whoever|whose|somebody|nobody|everybody|someone|everyone)\b", re.IGNORECASE)
SAYING = re.compile(r"\b(?:told|said|say|says|tell|tells)\b", re.IGNORECASE)
STRING_OR_COMMENT = re.compile(  # a comment is not inside a string
    r"""\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(?P<comment>\#[^\n]*)""",
    re.DOTALL,
)
FIELD_TERMS = re.compile(
    r"\b(?:returns?|raises?|requests?|responses?|process(?:es)?|queues?|locks?|leases?|defaults?|callbacks?|caches?|"
    r"parses?|validates?|serial\w+|buffers?|tokens?|headers?|schemas?|transactions?|connections?|timeouts?)\b",
    re.IGNORECASE,
)


def source_files(folder: Path) -> list[Path]:
    """Return the Python files of a package, without vendored and generated ones."""
    return sorted(path for path in folder.rglob("*.py") if not {"node_modules", "__pycache__"} & set(path.parts))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def is_bare_participle(name: str) -> bool:
    word = name.strip("_")
    return (
        word not in NOT_PARTICIPLES and "_" not in word and (word in IRREGULAR or bool(re.fullmatch(r"\w{3,}ed", word)))
    )


def prose(text: str, tree: ast.Module) -> str:
    """Return the docstrings and comments of a module as one text."""
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    parts = [docstring(node) for node in ast.walk(tree) if isinstance(node, nodes)]
    parts += [found["comment"].lstrip("# ") for found in STRING_OR_COMMENT.finditer(text) if found["comment"]]
    return "\n".join(parts)


def docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return (ast.get_docstring(node, clean=False) or "").strip()


def per_thousand(count: int, words: int) -> float:
    return 1000 * count / max(words, 1)


def as_cell(row: str, value: float) -> str:
    return f"{value:>12.1f}" if "%" in row or "1,000" in row else f"{value:>12.0f}"


def percent(part: int, whole: int) -> float:
    return 100 * part / max(whole, 1)


def measure(folder: Path) -> dict[str, float]:
    """Return the figures of one package."""
    names: list[str] = []
    docstrings: list[str] = []
    lengths: list[int] = []
    used_once = 0
    classes: defaultdict[str, set[Path]] = defaultdict(set)
    text_of_all, lines = "", 0
    files = source_files(folder)
    for path in files:
        text = path.read_text(encoding="utf-8")
        lines += text.count("\n")
        tree = ast.parse(text)
        text_of_all += prose(text, tree) + "\n"
        mentions = Counter(re.findall(r"\w+", text))
        for node in functions(tree):
            if not is_dunder(node.name) and not node.name.startswith("test_"):
                names.append(node.name)
                lengths.append((node.end_lineno or node.lineno) - node.lineno + 1)
                used_once += node.name.startswith("_") and mentions[node.name] == 2
            docstrings += [docstring(node)]
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].add(path)
    docstrings = [text for text in docstrings if text]
    words = len(re.findall(r"\b[A-Za-z']+\b", text_of_all))
    folders = Counter(path.parent for path in files)
    return {
        "top-level modules": sum(path.parent == folder for path in files),
        "files in the largest folder": max(folders.values()),
        "lines": lines,
        "functions": len(names),
        "lines of a function, median": sorted(lengths)[len(lengths) // 2],
        "lines of a function, 90 %": sorted(lengths)[len(lengths) * 9 // 10],
        "one-word function names, %": percent(sum("_" not in name.strip("_") for name in names), len(names)),
        "bare participles, %": percent(sum(map(is_bare_participle, names)), len(names)),
        "private functions used once, %": percent(used_once, len(names)),
        "public class names in several modules": sum(len(paths) > 1 for paths in classes.values()),
        "docstrings beginning with What, Who, Whether, How, %": percent(
            sum(bool(re.match(r"(?:What|Who|Whoever|Whether|How)\b", text)) for text in docstrings), len(docstrings)
        ),
        "'what' per 1,000 words": per_thousand(len(re.findall(r"\bwhat\b", text_of_all, re.IGNORECASE)), words),
        "who, somebody, nobody, everybody per 1,000 words": per_thousand(len(PRONOUNS.findall(text_of_all)), words),
        "told, said, say, tell per 1,000 words": per_thousand(len(SAYING.findall(text_of_all)), words),
        "terms of the field per 1,000 words": per_thousand(len(FIELD_TERMS.findall(text_of_all)), words),
    }


def packages(arguments: list[str]) -> dict[str, Path]:
    if arguments:
        return {argument: Path(argument) for argument in arguments}
    found = {"wick": Path(__file__).parent.parent / "src/wick"}
    for name in OTHERS:
        spec = find_spec(name)
        if spec and spec.origin:
            found[name] = Path(spec.origin).parent
    return found


def main() -> None:
    tables = {name: measure(folder) for name, folder in packages(sys.argv[1:]).items()}
    width = max(len(row) for table in tables.values() for row in table)
    print(" " * width, *(f"{name[-12:]:>12}" for name in tables))
    for row in next(iter(tables.values())):
        print(f"{row:<{width}}", *(as_cell(row, table[row]) for table in tables.values()))


if __name__ == "__main__":
    main()
