//! An application that is killed amid its transactions: what it was not told is found out from the tables.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_testkit::services;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::bank::Bank;

/// How often it is killed.
const KILLS: usize = 8;
/// How often the wrong way is tried: a kill may come between its two writes, or not.
const TRIES_MAX: usize = 60;
/// How long a transaction of a killed process may still be under way at the server.
const QUIET: Duration = Duration::from_millis(300);

/// What is there after a kill.
struct Found {
    told: BTreeSet<String>,
    orders: BTreeSet<String>,
    events: BTreeSet<String>,
}

/// Runs it until so many orders were told, kills it, and looks.
async fn kill(bank: &Bank, server: &str, after: usize, apart: &[&str]) -> Found {
    let mut producer = Command::new(env!("CARGO_BIN_EXE_aws-producer"))
        .args([server, &bank.prefix, &bank.accounts])
        .args(apart)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(producer.stdout.take().unwrap()).lines();
    let mut told = BTreeSet::new();
    while told.len() < after {
        told.insert(lines.next_line().await.unwrap().expect("it goes on until it is killed"));
    }
    // waits: a line is read between two transactions, and the kill is to come amid one
    tokio::time::sleep(Duration::from_millis(2 * after as u64)).await;
    producer.kill().await.unwrap();
    while let Some(line) = lines.next_line().await.unwrap() {
        told.insert(line);
    }
    let mut seen = None;
    loop {
        let now = (bank.ids(&bank.accounts, "pk").await, bank.events().await);
        if seen.as_ref() == Some(&now) {
            return Found { told, orders: now.0, events: now.1 };
        }
        seen = Some(now);
        // waits: nobody tells when a transaction of a process that is no more has ended
        tokio::time::sleep(QUIET).await;
    }
}

impl Bank {
    /// One attribute of each item of a table.
    async fn ids(&self, table: &str, attribute: &str) -> BTreeSet<String> {
        let scan = self.connection.tables().await.scan().table_name(table).consistent_read(true);
        let items = scan.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        let text = |value: &AttributeValue| value.as_s().ok().cloned();
        items.unwrap().iter().filter_map(|item| text(item.get(attribute)?)).collect()
    }

    /// Others use the same server.
    pub(crate) async fn remove(&self) {
        let names = self.connection.names();
        for table in [&names.outbox, &names.store, &names.inbox, &self.accounts] {
            self.connection.tables().await.delete_table().table_name(table).send().await.unwrap();
        }
    }

    /// The orders that have an event.
    async fn events(&self) -> BTreeSet<String> {
        self.ids(&self.connection.names().outbox, "aggregate_id").await
    }
}

/// F2, R001, R002, R051: an application is killed again and again amid its transactions. Each order that is there has
/// its event, each event its order, and whatever it was told is there. The negative control writes them apart, and is
/// seen to leave an order without its event.
#[tokio::test]
async fn an_application_that_is_killed_leaves_both_or_neither() {
    let server = match services::url("ddb") {
        Ok(server) => server,
        Err(reason) => return println!("skipped: a producer on DynamoDB: {reason}"),
    };
    let bank = Bank::make(&server).await;
    let (mut told, mut unknown) = (BTreeSet::new(), 0);
    for round in 0..KILLS {
        let found = kill(&bank, &server, 3 + round, &[]).await;
        told.extend(found.told);
        assert_eq!(
            found.orders, found.events,
            "an order without its event, or the other way round"
        );
        assert!(told.is_subset(&found.orders), "what was told is not there");
        unknown = found.orders.difference(&told).count();
    }
    eprintln!("{} orders were told, {unknown} were there and not told", told.len());
    let halves = async {
        for _ in 0..TRIES_MAX {
            let found = kill(&bank, &server, 2, &["apart"]).await;
            if found.orders != found.events {
                return true;
            }
        }
        false
    };
    assert!(halves.await, "the danger must be seen");
    bank.remove().await;
}
