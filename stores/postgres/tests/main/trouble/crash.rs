//! A server that goes down: whose death is counted, and whose is not.

use std::process::Command;

use postrider_testkit::cluster::Cluster;

use crate::relay::events;
use crate::support::{Fresh, LONG, acquire};

/// How often the partition was taken from an owner that died, as the next owner hears of it.
async fn taken_over(fresh: &Fresh) -> u32 {
    fresh.run("update {outbox_renewal} set expires_at = clock_timestamp()").await;
    acquire(&fresh.store(), LONG).await.expect("the lease has ended").takeovers
}

/// One session is killed outright: the server recovers as from a crash, and its first process lives on.
async fn kill_a_session(fresh: &Fresh) {
    let (victim, witness) = (fresh.connect().await, fresh.connect().await);
    let row = victim.query_one("select pg_backend_pid()", &[]).await.expect("a number");
    let pid: i32 = row.get(0);
    let killed = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    assert!(killed.expect("kill runs").success());
    let there = "select count(*) from {outbox_life}";
    while victim.simple_query(&fresh.sql(there)).await.is_ok() {}
    // The server notices a moment later, and takes connections until then; from then on nobody's stands.
    while witness.simple_query(&fresh.sql(there)).await.is_ok() {}
    while tokio_postgres::connect(&fresh.url, tokio_postgres::NoTls).await.is_err() {
        // waits: the server says nothing while it recovers, and is asked until it takes connections
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// F3, R094: an owner that fell silent together with the server has not died of an event, however often that
/// happens before a cursor is saved; one that died by itself has (negative control), and a crash in between
/// does not make that forgotten.
#[tokio::test]
async fn a_crash_of_the_server_is_nobodys_death() {
    let Some(mut cluster) = Cluster::start(&["fsync = off"]).await else { return };
    let fresh = Fresh::on(&cluster, 1).await;
    fresh.relay().await;
    events(&fresh, 20).await;
    let mut counts = Vec::new();
    for _ in 0..2 {
        cluster.crash().await;
        counts.push(taken_over(&fresh).await);
    }
    cluster.stop("fast");
    cluster.launch().await;
    counts.push(taken_over(&fresh).await);
    kill_a_session(&fresh).await;
    counts.push(taken_over(&fresh).await);
    assert_eq!(counts, [0, 0, 0, 0], "the server was down, and nobody is suspected");
    counts.clear();
    for _ in 0..2 {
        counts.push(taken_over(&fresh).await);
    }
    assert_eq!(counts, [1, 2], "the relay died while the server was there");
    cluster.crash().await;
    assert_eq!(taken_over(&fresh).await, 2, "not counted, and not forgotten");
    assert_eq!(taken_over(&fresh).await, 3);
}
