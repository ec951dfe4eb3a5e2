//! The program on DynamoDB, in tables of its own: made, written to, relayed, and looked at.

#[cfg(feature = "aws")]
mod alone;
mod derived;
mod operate;
mod partner;
mod refused;
mod server;

use std::io::Write as _;
use std::process::{Output, Stdio};

use postrider_testkit::services;

use crate::{Shop, code, err, events, orders, out, said};

/// Tables under a random prefix, and a folder for the commands.
struct Tables {
    server: String,
    prefix: String,
    shop: Shop,
}

impl Tables {
    /// None where there is no server; the reason is printed.
    #[allow(clippy::print_stdout, reason = "a skipped test says why")]
    fn bare(test: &str) -> Option<Tables> {
        let server = match services::url("ddb") {
            Ok(url) => url,
            Err(reason) => {
                println!("skipped: {test}: {reason}");
                assert!(std::env::var_os("CI").is_none(), "{reason}");
                return None;
            }
        };
        let id = postrider_core::EventId::mint().to_string().replace('-', "");
        Some(Tables { server, prefix: format!("cli{}-", &id[12..]), shop: Shop::bare() })
    }

    fn new(test: &str) -> Option<Tables> {
        let tables = Tables::bare(test)?;
        let init = tables.run(&["init", &tables.url(), "--partitions", "2", "--source", "/shop"]);
        assert_eq!(code(&init), 0, "{}", err(&init));
        Some(tables)
    }

    fn url(&self) -> String {
        format!("dynamodb://?prefix={}&endpoint={}", self.prefix, self.server)
    }

    fn run(&self, args: &[&str]) -> Output {
        self.shop.command(args).env("POSTRIDER_STORE", self.url()).output().unwrap()
    }

    /// Commits an event for each order, all in one transaction.
    fn place(&self, orders: &[&str]) {
        let lines: String = orders
            .iter()
            .map(|order| {
                format!(
                    "{{\"aggregate_type\": \"order\", \"aggregate_id\": \"{order}\", \
                     \"type\": \"order.changed\", \"payload\": 1250}}\n"
                )
            })
            .collect();
        let mut command = self.shop.command(&["enqueue", "--ndjson", "-"]);
        command.env("POSTRIDER_STORE", self.url()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let enqueued = child.wait_with_output().unwrap();
        assert_eq!(code(&enqueued), 0, "{}", err(&enqueued));
    }

    /// What is wrong, if anything is.
    fn wrong(&self) -> Vec<String> {
        let found = out(&self.run(&["doctor", "--output", "ndjson"]));
        let lines = found.lines().filter(|line| !line.contains("\"level\":\"good\""));
        lines.map(str::to_owned).collect()
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let settings = self.url().parse().unwrap();
            let connection = postrider_dynamodb::Connection::new(settings).unwrap();
            _ = postrider_dynamodb::remove(&connection).await;
        });
    }
}

#[test]
fn tables_are_made_once_and_the_recipe_touches_nothing() {
    let Some(tables) = Tables::bare("tables_are_made_once") else { return };
    let printed = tables.run(&["init", &tables.url(), "--print"]);
    assert_eq!(code(&printed), 0, "{}", err(&printed));
    assert_eq!(out(&printed).matches("create-table").count(), 3, "{}", out(&printed));
    let doctor = tables.run(&["doctor"]);
    assert_eq!(code(&doctor), 1, "{}", err(&doctor));
    assert!(said(&doctor).contains("make it with `postrider init`"), "{}", said(&doctor));
    let first = tables.run(&["init", &tables.url()]);
    assert!(said(&first).contains(&format!("created {}outbox", tables.prefix)), "{}", said(&first));
    let again = tables.run(&["init", "--store", &tables.url()]);
    assert_eq!((code(&again), out(&again).as_str()), (0, ""));
    assert!(said(&again).contains("nothing was changed"), "{}", said(&again));
    let refused = tables.run(&["init", &tables.url(), "--layout", "plain"]);
    assert_eq!(code(&refused), 78, "{}", err(&refused));
}

/// R038: what is committed is delivered by one run, each order's events in order, and a second run does not
/// wait for the first that is gone.
#[test]
fn one_run_delivers_what_is_committed_and_the_doctor_is_content() {
    let Some(tables) = Tables::new("one_run_delivers_what_is_committed") else { return };
    tables.place(&["1", "2", "1", "3"]);
    let wrong = tables.wrong();
    assert!(wrong.len() == 1 && wrong[0].contains("no relay is alive"), "{wrong:?}");
    let url = tables.url();
    let relay = ["relay", "--store", &*url, "--to", "stdout", "--once"];
    let first = tables.run(&relay);
    assert_eq!(code(&first), 0, "{}", err(&first));
    let arrived = events(&out(&first));
    let mut of_orders = orders(&arrived);
    of_orders.sort_unstable();
    assert_eq!(of_orders, ["1", "1", "2", "3"]);
    assert!(arrived.iter().all(|event| &*event.source == "/shop"));
    // Its heart is gone with it, or a second relay would leave it a share for a lease's length.
    let status = out(&tables.run(&["status"]));
    assert!(status.contains("is healthy") && !status.contains("stands by"), "{status}");
    tables.place(&["4"]);
    let second = tables.run(&relay);
    assert_eq!(out(&second).lines().count(), 1, "{}", err(&second));
    assert_eq!(tables.wrong(), Vec::<String>::new());
}

/// A file of more than a transaction takes is committed in several: here by its bytes, because an emulator that has
/// run for long is slow at many actions.
#[test]
fn a_file_larger_than_a_transaction_is_enqueued() {
    let Some(tables) = Tables::new("a_file_larger_than_a_transaction_is_enqueued") else { return };
    let payload = "x".repeat(230 * 1024);
    let line = format!(
        "{{\"aggregate_type\": \"order\", \"aggregate_id\": \"1\", \"type\": \"order.changed\", \
         \"payload\": \"{payload}\"}}\n"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), line.repeat(20)).unwrap();
    let enqueued = tables.run(&["enqueue", "--ndjson", file.path().to_str().unwrap()]);
    assert_eq!(code(&enqueued), 0, "{}", err(&enqueued));
    assert_eq!(out(&enqueued).lines().count(), 20, "each id is told");
}

/// What the store does not have is refused by name, and nothing is changed.
#[test]
fn what_the_store_does_not_have_is_said() {
    let Some(tables) = Tables::new("what_the_store_does_not_have_is_said") else { return };
    for (args, words) in [
        (&["migrate", "status"][..], "migrations of a store on DynamoDB are not listed"),
        (&["repair", "partitions", "--reason", "x", "--yes"], "partitions of a store on DynamoDB"),
        (&["repair", "sequence", "--reason", "x", "--yes"], "has no sequence"),
    ] {
        let ended = tables.run(args);
        assert_ne!(code(&ended), 0, "{args:?}");
        assert!(said(&ended).contains(words), "{args:?}: {}", said(&ended));
    }
}

/// A configuration says how the tables are used, and is refused for what they do not do.
#[test]
fn a_configuration_says_how_the_tables_are_used() {
    let Some(tables) = Tables::new("a_configuration_says_how_the_tables_are_used") else { return };
    let text = format!(
        "store = \"{}\"\n[dynamodb]\nstream = false\nbackstop = \"1s\"\n[retention]\noutbox = \"3d\"\n\
         [destinations.log]\nkind = \"stdout\"\n",
        tables.url()
    );
    tables.shop.configure(&text);
    tables.place(&["1", "2"]);
    let ended = tables.shop.run(&["relay", "--config", "postrider.toml", "--once"]);
    assert_eq!((code(&ended), out(&ended).lines().count()), (0, 2), "{}", err(&ended));

    tables
        .shop
        .configure(&format!("{text}[destinations.two]\nkind = \"file\"\nurl = \"file://x\"\n"));
    let ended = tables.shop.run(&["relay", "--config", "postrider.toml", "--once"]);
    assert_eq!(code(&ended), 78, "{}", err(&ended));
    assert!(said(&ended).contains("one mark in DynamoDB"), "{}", said(&ended));
}

/// R107: an endpoint with a password is refused, and the password is not shown.
#[test]
fn a_password_in_the_endpoint_is_refused_and_not_shown() {
    let shop = Shop::bare();
    let url = "dynamodb://eu-central-1?endpoint=http://u:hunter2@127.0.0.1:1";
    for args in [&["init", url][..], &["status", "--store", url], &["doctor", "--store", url]] {
        let ended = shop.run(args);
        assert_eq!(code(&ended), 78, "{args:?}: {}", err(&ended));
        assert!(!err(&ended).contains("hunter2"), "{}", err(&ended));
    }
}
