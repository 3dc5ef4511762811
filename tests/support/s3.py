"""S3 on this machine: a server of the package moto, spoken to over HTTP."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyarrow import fs

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}


def address(bucket: str, folder: str, port: int) -> str:
    """Write the address of a folder in a bucket, as configuration and commands take it."""
    return f"s3://{bucket}/{folder}?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"


@contextmanager
def s3_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """Run a server with a new bucket; gives the bucket's name and the server's port."""
    # moto takes a second to import, and each process collects all tests.
    from moto.server import ThreadedMotoServer

    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        # The servers of all tests in one process share what is in them.
        bucket = f"bucket-{uuid.uuid4()}"
        files = fs.S3FileSystem(
            scheme="http", endpoint_override=f"127.0.0.1:{port}", region="us-east-1", allow_bucket_creation=True
        )
        files.create_dir(bucket)
        yield bucket, port
    finally:
        server.stop()
