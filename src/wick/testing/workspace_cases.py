"""The files of a workspace and the refusals of a backend, for the test cases of backends."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Collection
from typing import Any, ClassVar

import pytest

from wick.errors import BackendError
from wick.protocols import Backend
from wick.testing.async_cases import AsyncCases

needs = pytest.mark.wick_needs


class WorkspaceFiles:
    """The files of a workspace, by way of its backend. A subclass can reach them past the backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    async def put(self, path: str, content: str | bytes = "") -> None:
        """Create a file, with its folders."""
        await self.backend.write(path, content)

    async def get(self, path: str) -> bytes:
        """Return the content of a file."""
        found = await self.backend.read(path)
        return base64.b64decode(found["content"]) if found["encoding"] == "base64" else found["content"].encode()

    async def paths(self) -> set[str]:
        """Return the paths of all files."""
        found, folders = set[str](), [""]
        while folders:
            folder = folders.pop()
            for entry in (await self.backend.ls(folder or "."))["entries"]:
                path = f"{folder}/{entry['name']}" if folder else entry["name"]
                if entry["type"] == "dir":
                    folders.append(path)
                else:
                    found.add(path)
        return found


async def assert_refused(code: str, doing: Awaitable[object]) -> BackendError:
    """Assert that an operation is refused with this code and a sentence."""
    with pytest.raises(BackendError) as caught:
        await doing
    assert caught.value.code == code, f"{caught.value.code}: {caught.value}"
    text = str(caught.value)
    assert " " in text and "Errno" not in text and "Traceback" not in text, text
    return caught.value


OPTIONAL_OPERATIONS = ("execute", "background", "terminal", "glob", "grep")


class WorkspaceCases(AsyncCases):
    """A base of test cases for backends, with the fixture `files` and the operations that are not supported."""

    unsupported: ClassVar[Collection[str]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        names = [cls.unsupported] if isinstance(cls.unsupported, str) else [*cls.unsupported]
        unknown = [name for name in names if name not in OPTIONAL_OPERATIONS]
        if unknown or isinstance(cls.unsupported, str):
            known = ", ".join(OPTIONAL_OPERATIONS)
            raise TypeError(f"{cls.__name__}.unsupported is a set or a tuple of names among {known}; not {names}")

    @pytest.fixture
    def files(self, backend: Backend) -> WorkspaceFiles:
        """Return the files of the workspace. Override it to reach them past the backend."""
        return WorkspaceFiles(backend)

    @pytest.fixture(autouse=True)
    def skip_unsupported(self, request: pytest.FixtureRequest) -> None:
        """Skip a case that needs an unsupported operation."""
        for mark in request.node.iter_markers("wick_needs"):
            if missing := [operation for operation in mark.args if not self.supports(operation)]:
                names = ", ".join(missing)
                pytest.skip(f"the backend does not support {names}: `unsupported` of {type(self).__name__}")

    def supports(self, operation: str) -> bool:
        """Return True if the backend supports an operation."""
        return operation not in self.unsupported

    def expected_code(self, operation: str, code: str) -> str:
        """Return the code of a refused operation, which is another one if the operation is not supported at all."""
        return code if self.supports(operation) else "unsupported"
