//! What a server and a network do to a store in operation, and that it goes on by itself.

mod certificate;
mod crash;
mod failover;

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use postrider_core::source::OutboxSource;
use postrider_core::{ErrorKind, HandlerName, InboxStore, Operator};
use postrider_postgres::PostgresStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::{Fresh, LONG, acquire, destination};
use postrider_testkit::cluster::Cluster;

/// The store's answers until one is good, and how many were not.
async fn recovers(store: &PostgresStore) -> usize {
    for failures in 0..20 {
        match store.overview().await.map(drop).and(store.destinations().await) {
            Ok(_) => return failures,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
        }
    }
    panic!("the store does not come back");
}

/// F3, F7: sessions that were killed are opened again by whoever needs them.
#[tokio::test]
async fn sessions_that_are_killed_are_opened_again() {
    let Some(mut fresh) = Fresh::made(4).await else { return };
    let name = format!("killed-{}", fresh.names.schema());
    fresh.store_url = fresh.url_with(&format!("application_name={name}"));
    let (store, lease) = fresh.relay().await;
    let kill = format!(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = '{name}'"
    );
    for _ in 0..5 {
        assert!(fresh.number(&kill).await > 0, "there were sessions");
        assert!(recovers(&store).await <= 6, "each session fails once");
        store.load(&lease, &crate::support::id("a")).await.map(drop).unwrap_or_else(|error| {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        });
    }
    store.load(&lease, &crate::support::id("a")).await.expect("the lease is still ours");
}

/// F36: whoever is not let in says what stands in the way, and goes on by itself when it is taken away.
#[tokio::test]
async fn what_stands_at_the_door_is_named() {
    let Some(mut fresh) = Fresh::new(1).await else { return };
    let name = format!("door_{}", fresh.names.schema());
    fresh.run(&format!("create role {name} login superuser")).await;
    fresh.run(&format!("create database {name}")).await;
    let own = fresh.url.replace("postgres@", &format!("{name}@"));
    let (server, _) = own.rsplit_once('/').expect("a database is named");
    let other = format!("{server}/{name}");
    for (url, shut, open, kind, named) in [
        (&own, "role {} nologin", "role {} login", ErrorKind::Unauthorized, "NOLOGIN"),
        (
            &other,
            "database {} allow_connections false",
            "database {} allow_connections true",
            ErrorKind::Unavailable,
            "ALLOW_CONNECTIONS",
        ),
        (
            &own,
            "role {} nosuperuser connection limit 0",
            "role {} superuser",
            ErrorKind::Unavailable,
            "connection limit",
        ),
    ] {
        fresh.store_url.clone_from(url);
        let store = fresh.store();
        fresh.run(&format!("alter {}", shut.replace("{}", &name))).await;
        let refused = store.destinations().await.unwrap_err();
        assert_eq!(refused.kind(), kind, "{refused:?}");
        assert!(refused.to_string().contains(named), "{refused}");
        fresh.run(&format!("alter {}", open.replace("{}", &name))).await;
        let let_in = store.destinations().await.err().map(|error| error.kind());
        assert!(matches!(let_in, None | Some(ErrorKind::SchemaMissing)), "{named}: {let_in:?}");
    }
    fresh.run(&format!("drop database {name} with (force)")).await;
    fresh.run(&format!("drop role {name}")).await;
}

/// INV-8: a session keeps what its role had when it began. Where a default of read-only is taken back, whoever was refused
/// under it goes on, though nobody ends its sessions.
#[tokio::test]
async fn what_may_be_written_to_again_is() {
    let Some(mut fresh) = Fresh::new(1).await else { return };
    let role = format!("reader_{}", fresh.names.schema());
    fresh.run(&format!("create role {role} login superuser")).await;
    fresh.run(&format!("alter role {role} set default_transaction_read_only = on")).await;
    fresh.store_url = fresh.url.replace("postgres@", &format!("{role}@"));
    let (store, handler) = (fresh.store(), HandlerName::new("billing").expect("a name"));
    let alone = store.record_horizon(&handler, LONG).await.unwrap_err();
    let within = store.purge(LONG, 1).await.unwrap_err();
    assert_eq!((alone.kind(), within.kind()), (ErrorKind::ReadOnly, ErrorKind::ReadOnly));
    fresh.run(&format!("alter role {role} reset default_transaction_read_only")).await;
    store.record_horizon(&handler, LONG).await.expect("it may be written to again");
    store.purge(LONG, 1).await.expect("in a transaction as well");
    drop(store);
    fresh.run(&format!("drop role {role}")).await;
}

/// F36: without a connection left, and with too few for a second session, the store says so and tries again.
#[tokio::test]
async fn out_of_connections_is_said_and_ends_by_itself() {
    let Some(mut fresh) = Fresh::new(4).await else { return };
    let role = format!("few_{}", fresh.names.schema());
    fresh.run(&format!("create role {role} login superuser connection limit 0")).await;
    fresh.run(&format!("alter role {role} nosuperuser")).await;
    fresh
        .run(&format!(
            "grant usage on schema {{schema}} to {role};
             grant all on all tables in schema {{schema}} to {role}"
        ))
        .await;
    fresh.store_url = fresh.url.replace("postgres@", &format!("{role}@"));
    let store = fresh.store();
    let refused = store.destinations().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    assert!(refused.to_string().contains("no connection left"), "{refused}");
    fresh.run(&format!("alter role {role} connection limit 1")).await;
    store.destinations().await.expect("one session, of which nothing is known");
    fresh.run(&format!("alter role {role} connection limit 10")).await;
    fresh.store().destinations().await.expect("enough");
    drop(store);
    fresh.run(&format!("revoke select on {{outbox_destination}} from {role}")).await;
    let store = fresh.store();
    let refused = store.destinations().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unauthorized, "{refused:?}");
    assert!(refused.to_string().contains("outbox_destination"), "{refused}");
    fresh.run(&format!("grant select on {{outbox_destination}} to {role}")).await;
    store.destinations().await.expect("granted again, without a restart");
    fresh.run(&format!("drop owned by {role}")).await;
    drop(store);
    fresh
        .run(&format!(
            "select pg_terminate_backend(pid) from pg_stat_activity where usename = '{role}';
             drop role {role}"
        ))
        .await;
}

/// F36: a password that was changed is read anew, without a restart.
#[tokio::test]
async fn a_rotated_password_is_read_anew() {
    let Some(cluster) = Cluster::start(&["fsync = off"]).await else { return };
    let fresh = Fresh::on(&cluster, 1).await;
    fresh.run("create role app superuser login password 'one'").await;
    cluster.write(
        "pg_hba.conf",
        "host all app 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n",
    );
    fresh.run("select pg_reload_conf()").await;
    let password = Arc::new(Mutex::new("one"));
    let (known, port) = (Arc::clone(&password), cluster.port());
    let address = move || {
        let password = *known.lock().expect("the password");
        Ok(format!("postgres://app:{password}@127.0.0.1:{port}/postgres"))
    };
    let store = PostgresStore::with_address(address, fresh.options()).expect("an address");
    store.open().await.expect("the first password");
    let kill =
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity where usename = 'app'";
    fresh.run(&format!("alter role app password 'two'; {kill}")).await;
    let mut refused = store.destinations().await.unwrap_err();
    // Each session that lay ready learns by its own use that it has ended.
    for _ in 0..20 {
        if refused.kind() == ErrorKind::Unavailable {
            refused = store.destinations().await.unwrap_err();
        }
    }
    assert_eq!(refused.kind(), ErrorKind::Unauthorized, "{refused:?}");
    assert!(!format!("{refused} {refused:?}").contains("one@"), "{refused:?}");
    *password.lock().expect("the password") = "two";
    store.destinations().await.expect("the second password");
}

/// F7: what is sent into a network that swallows it fails within its deadline, and a connection that is
/// accepted and not answered does too. When the network is back, so is the store.
#[tokio::test]
async fn a_network_that_swallows_everything_is_given_up() {
    let Some(mut fresh) = Fresh::new(4).await else { return };
    let (port, cut) = relay_bytes(Arc::new(Mutex::new(fresh.url.clone()))).await;
    fresh.store_url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let mut options = fresh.options();
    // Long enough for the calls before the cut, on a machine that is busy.
    options.statement_deadline = Duration::from_secs(10);
    let store = PostgresStore::with(&fresh.store_url, options).expect("a store");
    store.open().await.expect("open");
    store.register(&[destination("a")]).await.expect("register");
    cut.send_replace(true);
    let refused = store.destinations().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Timeout, "{refused:?}");
    let refused = store.destinations().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    assert!(refused.to_string().contains("does not"), "{refused}");
    cut.send_replace(false);
    assert!(acquire(&store, LONG).await.is_some(), "the network is back");
}

/// Carries bytes to the server that is meant when somebody connects, and back, while nothing is cut. What
/// is cut is kept open.
pub(crate) async fn relay_bytes(url: Arc<Mutex<String>>) -> (u16, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (cut, is_cut) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let server = url.lock().expect("an address").clone();
            let server = server.rsplit_once('@').and_then(|(_, rest)| rest.split_once('/'));
            let server = server.expect("host and port").0;
            let far = TcpStream::connect(server).await.expect("the server");
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::spawn(carry(near_in, far_out, is_cut.clone()));
            tokio::spawn(carry(far_in, near_out, is_cut.clone()));
        }
    });
    (port, cut)
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut cut: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if cut.wait_for(|cut| !cut).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// A server that ends sessions which have nothing to do leaves a store's own alone: each call after a pause would fail.
#[tokio::test]
async fn a_session_may_have_nothing_to_do() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let url = fresh.url_with("options=-c%20idle_session_timeout%3D100ms");
    let store = PostgresStore::with(&url, fresh.options()).expect("a store");
    assert_eq!(store.longest_horizon().await.expect("asked"), None);
    let of = |more: &str| {
        format!(
            "select count(*) from pg_stat_activity where pid <> pg_backend_pid() and query like '%\"{}\".\"inbox_horizon\"%' {more}",
            fresh.names.schema()
        )
    };
    let idle = of("and clock_timestamp() - state_change > interval '300 ms'");
    while fresh.number(&idle).await == 0 {
        assert_eq!(fresh.number(&of("")).await, 1, "the session was ended");
    }
    assert_eq!(store.longest_horizon().await.expect("asked again"), None);
}
