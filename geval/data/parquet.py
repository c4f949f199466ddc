"""Parquet: row groups are read in pieces; `Source.row` counts the rows from 1."""

from __future__ import annotations

from collections.abc import Iterator

from geval.data.rows import FileRows, Row
from geval.errors import ConfigError, DataError

_AT_ONCE = 256


def read(file: FileRows) -> Iterator[Row]:
    """A row for each row of the file. Needs pyarrow (extra `parquet`)."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ConfigError(
            "reading Parquet needs pyarrow",
            where=file.name,
            hint='Install it: python -m pip install "geval[parquet]"',
        ) from None
    with file.open() as stream:
        try:
            table = ParquetFile(stream)
            names = table.schema_arrow.names
            for name in names:
                if names.count(name) > 1:
                    raise DataError(f"two columns are named {name!r}", where=file.name)
            number = 0
            for batch in table.iter_batches(batch_size=_AT_ONCE):
                for record in batch.to_pylist():
                    number += 1
                    yield Row(record, file.source(number))
        except ArrowException as error:
            reason = str(error).splitlines()[0]
            message = f"is no Parquet file that can be read: {reason}"
            raise DataError(message, where=file.name) from error
