//! Sessions of tests on a server that may be starting, stopping, or gone.

use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) use postrider_testkit::cluster::Cluster;
use tokio_postgres::{Client, NoTls};

/// A loaded machine takes long to start a server.
const PATIENCE: Duration = Duration::from_secs(90);

/// Kills a session's process, as a fault of the server's own would, and returns when the server knows of it:
/// until then it still accepts connections, only to end them with all the others.
pub(crate) async fn kill_backend(url: &str) {
    let (victim, witness) = (connect(url).await, connect(url).await);
    let row = victim.query_one("select pg_backend_pid()", &[]).await.expect("a number");
    let process = row.get::<_, i32>(0).to_string();
    let killed = Command::new("kill").args(["-9", &process]).status().expect("kill runs");
    assert!(killed.success());
    let ended = witness.batch_execute(&format!("select pg_sleep({})", PATIENCE.as_secs())).await;
    assert!(ended.is_err(), "the server lost a process and did not end the others");
}

pub(crate) async fn connect(url: &str) -> Client {
    let began = Instant::now();
    loop {
        if let Some(client) = try_connect(url).await {
            return client;
        }
        assert!(began.elapsed() < PATIENCE, "no connection");
        // waits: a server that starts tells nobody when it is ready
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A connection that answers, or nothing.
pub(crate) async fn try_connect(url: &str) -> Option<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.ok()?;
    tokio::spawn(connection);
    client.simple_query("select 1").await.ok()?;
    Some(client)
}
