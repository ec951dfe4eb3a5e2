"""Places an order: python3 shop.py DATABASE ORDER TOTAL_CENTS

The order and the event about it are written in one transaction. Nothing is sent from here.
"""

import json
import sqlite3
import sys


def place_order(database: str, order: int, total_cents: int) -> None:
    # isolation_level=None leaves the transaction to us.
    db = sqlite3.connect(database, isolation_level=None, timeout=5)
    db.execute("pragma synchronous = full")
    db.execute("create table if not exists orders (id integer primary key, total_cents integer)")
    db.execute("begin immediate")
    try:
        db.execute("insert into orders (id, total_cents) values (?, ?)", (order, total_cents))
        db.execute(
            "insert into outbox (aggregate_type, aggregate_id, event_type, payload)"
            " values ('order', ?, 'order.placed', ?)",
            (str(order), json.dumps({"order": order, "total_cents": total_cents})),
        )
        db.execute("commit")
    except BaseException:
        db.execute("rollback")
        raise
    finally:
        db.close()


if __name__ == "__main__":
    place_order(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
