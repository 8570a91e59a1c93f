"""Object stores: S3, Azure blobs, Google Cloud Storage, and which of them a URL means.

Not what is kept in them (`checkpoint_mirror`, `download_prefix`). Standard library only: the launcher carries it. May
import `storage.credentials`, `storage.http`, `storage.transfers`, `storage.urls`.
"""
