"""From tables of any size to a store on disk, and models that are fitted on one.

:func:`ingest` writes a store in bounded memory, :func:`open_store` opens one.
"""

from gsparc._store import Store, is_store, open_store
from gsparc.storage.ingesting import IngestSettings, ingest

__all__ = ["IngestSettings", "Store", "ingest", "is_store", "open_store"]
