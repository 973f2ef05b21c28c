"""Checks of code inside a command: whether a program for python, awk, sed or perl can start another program.

Each check knows a small part of its language that cannot, and returns False for everything else.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable

CODE_CHARS = 4_000  # longer code is not checked


def is_plain_python(code: str) -> bool:
    """Return True if every module, builtin and attribute that the code uses is known to start no program."""
    if len(code) > CODE_CHARS or code.count("(") + code.count("[") + code.count("{") > 300:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
        return all(map(_is_plain_node, ast.walk(tree)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_plain_node(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return all(alias.name in _MODULES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return not node.level and node.module in _MODULES and all(alias.name in _NAMES for alias in node.names)
    if isinstance(node, ast.Attribute):
        return node.attr in _NAMES
    if isinstance(node, ast.Name):
        return node.id not in _BUILTINS and not node.id.startswith("__")
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return not node.decorator_list and not node.name.startswith("__")
    return not isinstance(node, ast.MatchClass)


_MODULES = frozenset(
    "sys json math re time datetime random statistics string base64 hashlib itertools textwrap".split()
)
_BUILTINS = frozenset(
    "eval exec compile getattr setattr delattr globals locals vars breakpoint help input memoryview super type object"
    " __import__ __builtins__ __loader__ __spec__ copyright credits license quit".split()
)
_NAMES = frozenset(
    "stdin stdout stderr argv version version_info platform executable exit maxsize read readline readlines write"
    " load loads dump dumps sqrt floor ceil pi e log log2 log10 exp sin cos tan pow fabs gcd factorial inf nan isnan"
    " findall search match fullmatch sub split compile group groups finditer escape start end span IGNORECASE MULTILINE"
    " DOTALL now utcnow today date datetime timedelta timezone utc time sleep strftime strptime isoformat timestamp"
    " fromtimestamp total_seconds days seconds perf_counter random randint choice shuffle sample uniform mean"
    " median stdev ascii_letters digits b64encode b64decode hexdigest md5 sha1 sha256 sha512 new update chain product"
    " permutations combinations count islice groupby dedent indent wrap get items keys values append extend insert pop"
    " remove sort reverse index setdefault add discard union copy clear join strip lstrip rstrip splitlines replace"
    " upper lower title capitalize startswith endswith find rfind partition rpartition zfill ljust rjust center encode"
    " decode isdigit isalpha isalnum isspace hex bit_length real imag year month day hour minute second".split()
)


def is_plain_awk(code: str) -> bool:
    """Return True if the program has no `system`, no pipe and no indirect call."""
    return "system" not in code and "@" not in code and "|" not in code.replace("||", "") and "extension" not in code


_SED_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/)I?"
_SED_RANGE = rf"(?:{_SED_ADDRESS}(?:[,~+]\+?{_SED_ADDRESS})?)?\s*!?\s*"
_SED_PART = {sign: rf"(?:[^{re.escape(sign)}\\\n]|\\.)*" for sign in "/|,#@:!%"}
_SED_SUBSTITUTE = "|".join(
    rf"s{re.escape(sign)}{part}{re.escape(sign)}{part}{re.escape(sign)}[gpiI0-9]*" for sign, part in _SED_PART.items()
)
_SED_STEP = re.compile(rf"\s*(?:{_SED_RANGE}(?:{_SED_SUBSTITUTE}|[pdqnNDPhHgGx=])\s*)?(?:;|\n|$)")


def is_plain_sed(code: str) -> bool:
    """Return True if the script consists of plain substitutions and one-letter commands, without `e` and `w`."""
    return len(code) <= CODE_CHARS and _has_only_steps(code, _SED_STEP)


def _has_only_steps(code: str, step: re.Pattern[str]) -> bool:
    """Return True if the code is a sequence of matches."""
    at = 0
    while at < len(code):
        found = step.match(code, at)
        if found is None or found.end() == at:
            return False
        at = found.end()
    return True


_PERL_STEP = re.compile(
    r"\s*(?:s/([^/\\]|\\.)*/([^/\\]|\\.)*/[gims]*|print(?:\s+if\s+/([^/\\]|\\.)*/i?)?|chomp)\s*(?:;|$)"
)
# An index or a key in an expression is code: `s/a/$h{system …}/`.
_PERL_ELEMENT = re.compile(r"\$[^/]*[\[{]|->")


def is_plain_perl(code: str) -> bool:
    """Return True if the code consists of substitutions and prints, without code inside of an expression."""
    if len(code) > CODE_CHARS or any(sign in code for sign in ("(?", "@", "`", "${", "$(", "\n")):
        return False
    if _PERL_ELEMENT.search(code):
        return False
    return _has_only_steps(code, _PERL_STEP)


def is_never_plain(code: str) -> bool:
    """Return False: nothing is known about this language."""
    return False


Check = Callable[[str], bool]
