"""A PostgreSQL that tests may break."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support import postgres
from xbus.broker.journal.database import schema


@pytest.fixture(scope="session")
def cluster() -> Iterator[postgres.Cluster]:
    """A PostgreSQL that a test may stop; all leave it running."""
    try:
        with postgres.cluster() as private:
            yield private
    except postgres.NotFound as error:
        pytest.skip(str(error))


@pytest.fixture
def url(cluster: postgres.Cluster) -> Iterator[str]:
    """A database there, with the bus's schema."""
    if not cluster.runs:
        cluster.start()  # a test that failed may have left it stopped
    with closing(postgres.Server(cluster.url)) as server:
        url = server.create_empty()
        schema.upgrade(url)
        yield url
        server.drop(url)
