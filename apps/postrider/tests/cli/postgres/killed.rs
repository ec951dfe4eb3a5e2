//! Two `postrider init` of one database, one of which is killed.

use std::process::Stdio;
use std::time::Duration;

use super::Database;
use crate::{code, err, events, out};

/// F30: of two that make the tables at once one is killed, at another moment each time: the other one finishes, the
/// tables are whole, and a relay delivers what is written to them.
#[test]
fn one_init_is_killed_and_the_other_finishes() {
    let mut killed = 0;
    for wait in [20, 90, 180, 330] {
        let Some(database) = Database::bare("one_init_is_killed") else { return };
        let start = || {
            let mut init = database.shop.command(&["init", &database.url(), "--partitions", "4"]);
            init.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
        };
        let (mut victim, survivor) = (start(), start());
        // waits: to kill it at some moment of its work, which it does not tell.
        std::thread::sleep(Duration::from_millis(wait));
        victim.kill().unwrap();
        killed += i32::from(victim.wait().unwrap().code().is_none());
        let survivor = survivor.wait_with_output().unwrap();
        assert_eq!(code(&survivor), 0, "after {wait} ms: {}", err(&survivor));
        for row in database.rows(&["migrate", "status"]) {
            assert_eq!(row["state"], "applied", "{row}");
        }
        database.is_sound();
        database.place(2, 2);
        let relayed = database.relay(&["--to", "stdout", "--once"]);
        assert_eq!((code(&relayed), events(&out(&relayed)).len()), (0, 4), "{}", err(&relayed));
    }
    assert!(killed > 0, "each ended before it was killed");
}

/// F30: one that is killed in the middle of its migration, where it waits for another's lock, has made nothing, and a
/// third one makes the tables.
#[test]
fn one_init_is_killed_in_its_migration() {
    let Some(database) = Database::bare("one_init_is_killed_in_its_migration") else { return };
    database.with_client(async |client| {
        // Somebody makes the schema at the same moment and has not committed.
        let schema = format!("begin; create schema \"{}\"", database.schema);
        client.batch_execute(&schema).await.unwrap();
        let mut victim = database.shop.command(&["init", &database.url(), "--partitions", "4"]);
        let mut victim = victim.stderr(Stdio::piped()).spawn().unwrap();
        let mut waits = false;
        let blocked = "select count(*) from pg_locks
            where not granted and pg_backend_pid() = any (pg_blocking_pids(pid))";
        while !waits {
            assert!(victim.try_wait().unwrap().is_none(), "it ended without waiting");
            let row = client.query_one(blocked, &[]).await.unwrap();
            waits = row.get::<_, i64>(0) > 0;
        }
        victim.kill().unwrap();
        assert_eq!(victim.wait().unwrap().code(), None, "it was killed");
        client.batch_execute("rollback").await.unwrap();
    });
    let status = database.run(&["migrate", "status"]);
    assert!(out(&status).contains("pending"), "{}", out(&status));
    let third = database.run(&["init", &database.url(), "--partitions", "4"]);
    assert_eq!(code(&third), 0, "{}", err(&third));
    database.is_sound();
}
