"""Brings the tables up to date: what `gateway/database.py` starts. Its input: [URL, base folder] as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from gateway.database import Database, DatabaseDown, ValueRefused


async def main(url: str, base_folder: str) -> int:
    """Upgrade; the exit code."""
    database = Database(url, Path(base_folder))
    try:
        await database.upgrade()
    except (DatabaseDown, ValueRefused) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        await database.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*json.load(sys.stdin))))
