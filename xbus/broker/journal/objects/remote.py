"""Objects in a store that pyarrow reaches, such as S3. An object appears there when it is whole, or not at all."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.fs as fs

from xbus.broker.journal.objects.stores import MARK, ListedObject, missing, store_errors
from xbus.errors import ConfigurationError


class RemoteStore:
    """Keeps objects below an address.

    Args:
        place: such as ``s3://bucket/objects?region=eu-west-3``; keys come by the storage's own means.

    Raises:
        ConfigurationError: no file system fits the address.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        try:
            self._files, path = fs.FileSystem.from_uri(place)
        except (pa.ArrowInvalid, OSError) as error:
            raise ConfigurationError(
                f"objects can't be kept at {place} ({error})", "write it like s3://bucket/objects"
            ) from error
        self._root = path.rstrip("/")

    def put(self, digest: bytes, data: bytes) -> None:
        with store_errors(self.place):
            self._write(self._path(digest), data)

    def get(self, digest: bytes) -> bytes:
        with store_errors(self.place):
            found = self._read(self._path(digest))
        if found is None:
            raise missing(self.place, digest)
        return found

    def remove(self, digest: bytes) -> None:
        with store_errors(self.place):
            try:
                self._files.delete_file(self._path(digest))
            except FileNotFoundError:
                pass

    def listed(self) -> Iterator[ListedObject]:
        # By the first two digits, so that a page of the listing fits into memory.
        for number in range(256):
            folder = f"{self._root}/{number:02x}"
            with store_errors(self.place):
                found = self._files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
            for info in found:
                if info.type == fs.FileType.File and len(info.base_name) == 64:
                    yield ListedObject(bytes.fromhex(info.base_name), info.mtime_ns / 1e9)

    def read_mark(self) -> bytes | None:
        with store_errors(self.place):
            return self._read(f"{self._root}/{MARK}")

    def write_mark(self, content: bytes) -> None:
        with store_errors(self.place):
            self._write(f"{self._root}/{MARK}", content)

    def is_empty(self) -> bool:
        with store_errors(self.place):
            return not self._files.get_file_info(fs.FileSelector(self._root, allow_not_found=True))

    def _path(self, digest: bytes) -> str:
        name = digest.hex()
        return f"{self._root}/{name[:2]}/{name}"

    def _write(self, path: str, data: bytes) -> None:
        if not isinstance(self._files, fs.S3FileSystem):
            self._files.create_dir(path.rpartition("/")[0], recursive=True)
        # Arrow closes the stream after an error too, and what is closed appears. Its name is the hash of what it
        # should be: readers find out, and the next attempt writes it anew.
        with self._files.open_output_stream(path) as sink:
            sink.write(data)

    def _read(self, path: str) -> bytes | None:
        try:
            with self._files.open_input_file(path) as source:
                return bytes(source.read())
        except FileNotFoundError:
            return None
