"""No limits: every call is admitted."""

from __future__ import annotations

from gateway.call import Call, Lease, NoLease


class Unlimited:
    """The limit stage of a configuration without `limits`."""

    async def admit(self, call: Call) -> Lease:
        """A lease on nothing."""
        return NoLease()
