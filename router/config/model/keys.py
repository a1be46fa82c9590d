"""Declares the section `keys`: API keys, and how their users are named."""

from __future__ import annotations

from router.config.model.setting_types import Frozen


class Keys(Frozen, frozen=True):
    """API keys. A key is sent in `Authorization: Bearer`, `x-api-key`, `api-key` or
    `x-goog-api-key`."""

    # The file with the hashes of the API keys. `hedgerow key` prints a line for it. The file is
    # read again at every reload.
    file: str | None = None
    # A folder whose files have lines of the same form, such as a mounted Kubernetes secret with one
    # file for each key. Its keys are used in addition to those of `file`.
    folder: str | None = None
    required: bool = False  # A request without a known key returns 401.
    forward: bool = False  # Forward the client's key to the replica.
    # The header that names the user of a key. Without the header, the body's `user` names the user.
    user_header: str = "x-user-id"
    names_users: bool = False  # Requests without a known key may also name users.
