"""An object store for a test: a server in this process, which the environment leads to for as long as it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@contextmanager
def serving_buckets(*buckets: str, credentials: Mapping[str, str] = CREDENTIALS) -> Iterator[Any]:
    """A server with these buckets, and the s3fs file system that reaches it. Skips where one of the two packages is not there."""
    moto_server, s3fs = pytest.importorskip("moto.server"), pytest.importorskip("s3fs")
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**credentials, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()  # one that was opened before reaches the server of another test
        files = s3fs.S3FileSystem()
        for bucket in buckets:
            files.mkdir(bucket)
        yield files
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()
