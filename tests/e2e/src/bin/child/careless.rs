//! A relay that breaks the rule: it records a page as acknowledged, and publishes afterwards. Killed
//! in between it loses the page, which the checker must see.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::lease::AcquireRequest;
use postrider_core::source::FetchRequest;
use postrider_core::waiting::{Passed, Settlement, SettlementPart};
use postrider_core::{
    Broker as _, Error, ErrorKind, Format, Lease, OutboxSource as _, Outgoing, RelayId, Result,
};
use postrider_e2e::destination;
use postrider_local::LocalBroker;
use postrider_sqlite::SqliteStore;

use crate::args::Args;
use crate::halt::Halt;
use crate::words::say;

pub(crate) async fn run(args: &Args, halt: &Halt) -> Result<ExitCode> {
    let files = args.files()?;
    let (source, broker) = (SqliteStore::new(&files.shop)?, LocalBroker::open(&files.queue)?);
    let definition = destination()?;
    source.open().await?;
    source.register(std::slice::from_ref(&definition)).await?;
    let lease = acquire(&source).await?;
    say("ready");
    loop {
        let after = source.load(&lease, &definition.id).await?.cursor;
        let request = FetchRequest {
            lease: lease.clone(),
            destinations: vec![definition.id.clone()],
            after: after.clone(),
            until: None,
            rows_max: 20,
            bytes_max: 1024 * 1024,
        };
        let page = source.fetch(&request).await?;
        let Some(last) = page.rows.last() else {
            return Ok(ExitCode::SUCCESS);
        };
        let mut part = SettlementPart::new(definition.id.clone());
        part.cursor = Some((after, last.cursor.clone()));
        part.passed = page.rows.iter().map(|row| (row.row, Passed::Acked)).collect();
        source.settle(&Settlement { lease: lease.clone(), parts: vec![part] }).await?;
        halt.at("after_mark").await;
        let events = page.rows.into_iter().filter_map(|row| row.event.ok());
        let batch: Vec<Outgoing> = events
            .map(|event| Outgoing {
                topic: Arc::from(&*event.event_type),
                event,
                format: Format::Structured,
                layout: None,
                marks: postrider_core::Marks::default(),
                attempt: 1,
            })
            .collect();
        broker.publish(&batch).await?;
    }
}

async fn acquire(source: &SqliteStore) -> Result<Lease> {
    let request = AcquireRequest {
        owner: RelayId::mint(),
        lease_duration: Duration::from_millis(500),
        wanted: 1,
        free_for: Duration::ZERO,
        presence: None,
        current: true,
        dead: None,
    };
    let granted = source.acquire(&request).await?.granted.pop();
    granted
        .map(|granted| granted.lease)
        .ok_or_else(|| Error::new(ErrorKind::Busy, "acquire").message("the lease is not free"))
}
