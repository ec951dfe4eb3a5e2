//! Schemas that one test after another borrows: making the tables costs ten times what emptying them does.
//!
//! Invariants: a borrowed schema is as fresh as a new one. Whoever used it before has no session left, its
//! rows and numbers are those that the migrations made, and one whose tables or functions were changed is
//! dropped and not lent again. None is left behind, however the run ends: a process of its own waits for the
//! end of this one, and drops them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use postrider_postgres::{Names, Setup, init};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::connect;

const KEEP: &str = include_str!("pool/keep.sql");
const DROP: &str = "set lock_timeout = '5s'; drop schema if exists \"BARE\", \"BARE_kept\" cascade";

/// Tells the process that sweeps what it is.
const SWEEPER: &str = "POSTRIDER_TEST_SWEEPER";

static FREE: Mutex<BTreeMap<Kind, Vec<Names>>> = Mutex::new(BTreeMap::new());
static MADE: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// What may be lent to whom.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Kind {
    /// The server, without a pooler.
    pub(crate) url: String,
    pub(crate) partitions: u16,
    /// Whether tests reach it through a pooler, whose sessions are not ours to end.
    pub(crate) pooled: bool,
    /// What stands beside Postrider's tables.
    pub(crate) beside: &'static str,
}

/// A schema like a new one, and a session on the server. Sessions on the schema carry its name as their
/// application's.
pub(crate) async fn borrow(kind: &Kind) -> (Names, Client) {
    let client = connect(&kind.url).await;
    loop {
        let free =
            FREE.lock().unwrap_or_else(PoisonError::into_inner).get_mut(kind).and_then(Vec::pop);
        let Some(names) = free else { return (make(kind, &client).await, client) };
        // Its own tables may have been locked, or gone.
        let renew = render(&names, "select \"BARE_kept\".renew($1)");
        let renewed = client.query_one(&renew, &[&kind.pooled]).await;
        if renewed.is_ok_and(|row| row.get(0)) {
            return (names, client);
        }
        drop_all(&client, names.schema()).await;
    }
}

pub(crate) fn give_back(kind: Kind, names: Names) {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    free.entry(kind).or_default().push(names);
}

/// An address whose sessions carry the schema's name.
pub(crate) fn named(url: &str, names: &Names) -> String {
    with(url, &format!("application_name={}", names.schema()))
}

/// An address with one more parameter.
pub(crate) fn with(url: &str, parameter: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}{parameter}")
}

async fn make(kind: &Kind, client: &Client) -> Names {
    // Behind those that tests make for themselves, in lists that end somewhere.
    let schema = format!("z{}", &Uuid::now_v7().simple().to_string()[4..]);
    let names = Names::new(&schema, "outbox", "inbox").expect("a name");
    remember(&kind.url, &schema);
    let setup =
        Setup { names: names.clone(), partitions: Some(kind.partitions), ..Setup::default() };
    init(&kind.url, &setup).await.expect("the tables are made");
    client.batch_execute(&names.render(kind.beside)).await.expect("what stands beside them");
    client.batch_execute(&render(&names, KEEP)).await.expect("what is there is kept");
    names
}

fn render(names: &Names, statement: &str) -> String {
    names.render(&statement.replace("BARE", names.schema()))
}

async fn drop_all(client: &Client, schema: &str) {
    let names = Names::new(schema, "outbox", "inbox").expect("a name");
    client.batch_execute(&render(&names, DROP)).await.expect("it is dropped");
}

/// Tells the sweeper of a schema before there is one.
fn remember(url: &str, schema: &str) {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let sweeper = made.get_or_insert_with(|| {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        // In a group of its own, so that what interrupts the tests leaves it alone.
        command
            .args(["--exact", "pool::what_was_lent_is_dropped"])
            .env(SWEEPER, "1")
            .process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the sweeper starts").stdin.take().expect("it listens")
    });
    writeln!(sweeper, "{url} {schema}").expect("the sweeper lives");
}

/// Each run leaves nothing behind: this is what its sweeper does. In the run itself, a schema is lent twice, and
/// not a third time after its tables have changed.
#[tokio::test]
async fn what_was_lent_is_dropped() {
    if std::env::var_os(SWEEPER).is_none() {
        return lend_twice().await;
    }
    let schemas: Vec<String> = std::io::stdin().lock().lines().map_while(Result::ok).collect();
    for line in schemas {
        let (url, schema) = line.rsplit_once(' ').expect("an address and a schema");
        drop_all(&connect(url).await, schema).await;
    }
}

async fn lend_twice() {
    let Some(url) = crate::support::url() else { return };
    // Of a kind that no other test borrows.
    let kind = Kind { url, partitions: 5, pooled: false, beside: "" };
    let (names, _) = borrow(&kind).await;
    let left = connect(&named(&kind.url, &names)).await;
    let write = "delete from {outbox_lease} where partition = 2;
        select nextval({text:outbox_seq}); begin; update {outbox_life} set token = gen_random_uuid()";
    left.batch_execute(&names.render(write)).await.expect("it is used");
    give_back(kind.clone(), names.clone());
    let (again, _) = borrow(&kind).await;
    assert_eq!(again, names, "it is lent again");
    left.simple_query("select 1").await.expect_err("nobody else is left on it");
    let client = connect(&named(&kind.url, &names)).await;
    let count = "select count(*), (select is_called from {outbox_seq}) from {outbox_lease}";
    let row = client.query_one(&names.render(count), &[]).await.expect("a row");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, bool>(1)), (5, false), "as it was made");
    client.batch_execute(&names.render("drop view {outbox_status}")).await.expect("a change");
    give_back(kind.clone(), names.clone());
    let (other, _) = borrow(&kind).await;
    assert_ne!(other, names, "one that was changed is not lent again");
    give_back(kind, other);
}
