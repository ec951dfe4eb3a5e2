//! The screen of `postrider status`: at most 24 lines in the usual case.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::age::relative;
use crate::shape::{Destination, Partition, Status, Verdict, bad_unless_zero};
use crate::status::held::uncounted;
use crate::table::{Cell, Column, Fit, Table, Tone, clean};
use crate::terminal::{Style, count, stdout_style, wrap};

/// Routes, owners, and causes that are shown; the others are counted.
const LINES_MAX: usize = 4;

const COLUMNS: &[Column] = &[
    ("DESTINATION", Fit::Text),
    ("STATE", Fit::Whole),
    ("PENDING", Fit::Number),
    ("OLDEST", Fit::Whole),
    ("OUT/S", Fit::Number),
    ("RETRYING", Fit::Number),
    ("PARKED", Fit::Number),
    ("DEAD", Fit::Number),
    ("DISABLED", Fit::ExtraNumber),
    ("HELD", Fit::ExtraNumber),
];

/// Draws a reading.
pub(crate) fn draw(status: &Status, width: Option<usize>) -> String {
    draw_in(status, width, stdout_style())
}

fn draw_in(status: &Status, width: Option<usize>, style: Style) -> String {
    let mut text = String::new();
    let word = match status.verdict {
        Verdict::Healthy => style.good("healthy"),
        Verdict::Unhealthy => style.bad("unhealthy"),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{}",
        wrap(&format!("{} is {word} · {}", clean(&status.store), flow(status)), "")
    );
    text.push('\n');
    let mut table = Table::new(COLUMNS);
    for row in &status.destinations {
        table.push(cells(row, status.now));
    }
    text.push_str(&table.render(width, style, true));
    backlog(status, &mut text);
    owners(status, &mut text);
    later(status, &mut text);
    held_up_by(status, style, &mut text);
    text
}

fn flow(status: &Status) -> String {
    let mut text = format!("{} committed", count(status.enqueued));
    if let Some(rate) = status.enqueued_per_second {
        let _ = write!(text, ", {rate}/s");
    }
    let _ = write!(text, " · {} in the outbox", count(status.kept));
    text
}

fn cells(row: &Destination, now: postrider_core::Timestamp) -> Vec<Cell> {
    vec![
        (&*row.destination).into(),
        match row.state {
            postrider_core::DestinationState::Active => Cell::toned("active", Tone::Good),
            postrider_core::DestinationState::Paused => Cell::toned("paused", Tone::Bad),
        },
        row.pending.into(),
        row.pending_since.map(|time| relative(time, now)).as_deref().into(),
        row.acked_per_second.map(|rate| rate.to_string()).as_deref().into(),
        row.retrying.into(),
        row.parked.into(),
        bad_unless_zero(row.dead),
        if row.disabled > 0 { bad_unless_zero(row.disabled) } else { "-".into() },
        if row.held > 0 { row.held.into() } else { "-".into() },
    ]
}

fn backlog(status: &Status, text: &mut String) {
    if status.backlog.is_empty() {
        return;
    }
    text.push_str("\nbacklog by route\n");
    for row in status.backlog.iter().take(LINES_MAX) {
        let topic = row.topic.as_deref().map_or_else(|| "no route".to_owned(), clean);
        let least = if row.at_least { "at least " } else { "" };
        let age = relative(row.oldest_at, status.now);
        let _ = writeln!(
            text,
            "  {} → {topic}: {least}{}, the oldest {age}",
            row.destination,
            count(row.count)
        );
    }
    more(status.backlog.len(), "routes", text);
}

fn more(all: usize, nouns: &str, text: &mut String) {
    if all > LINES_MAX {
        let _ = writeln!(text, "  and {} more {nouns}", all - LINES_MAX);
    }
}

/// Partitions by owner, each with the shortest lease.
fn owners(status: &Status, text: &mut String) {
    let mut owners: BTreeMap<String, Vec<&Partition>> = BTreeMap::new();
    for partition in &status.partitions {
        let owner = match (&partition.owner, partition.paused) {
            (_, true) => "paused".to_owned(),
            (None, false) => "nobody".to_owned(),
            (Some(owner), false) => match &partition.host {
                Some(host) => format!("{owner} on {}", clean(host)),
                None => owner.clone(),
            },
        };
        owners.entry(owner).or_default().push(partition);
    }
    text.push_str("\npartitions\n");
    for (owner, partitions) in owners.iter().take(LINES_MAX) {
        let lease = partitions.iter().filter_map(|view| view.expires_in_seconds).reduce(f64::min);
        let lease = lease.map_or(String::new(), |left| format!(", lease {left:.0}s"));
        let _ = writeln!(text, "  {}: {owner}{lease}", numbers(partitions));
    }
    more(owners.len(), "owners", text);
}

fn numbers(partitions: &[&Partition]) -> String {
    match partitions {
        [one] => one.partition.to_string(),
        several => {
            let shown: Vec<String> =
                several.iter().take(8).map(|one| one.partition.to_string()).collect();
            let more = if several.len() > 8 { ", …" } else { "" };
            format!("{}{more} ({})", shown.join(", "), several.len())
        }
    }
}

/// What is not due or not done.
fn later(status: &Status, text: &mut String) {
    let mut parts = Vec::new();
    if status.scheduled > 0 {
        let next =
            status.scheduled_next_at.map(|time| format!(", next {}", relative(time, status.now)));
        parts.push(format!("{} scheduled{}", count(status.scheduled), next.unwrap_or_default()));
    }
    let ranges: u64 = status.destinations.iter().map(|row| row.ranges).sum();
    if let Some(uncounted) = uncounted(ranges) {
        parts.push(format!("parked, and not counted: {uncounted}"));
    }
    if status.requests > 0 {
        let noun = if status.requests == 1 { "request" } else { "requests" };
        parts.push(format!("{} open {noun}", count(status.requests)));
    }
    let others = status.relays.iter().filter(|relay| {
        status.partitions.iter().all(|partition| partition.owner.as_ref() != Some(&relay.relay))
    });
    let standing_by = others.count();
    if standing_by > 0 {
        parts.push(match standing_by {
            1 => "1 relay stands by".to_owned(),
            several => format!("{several} relays stand by"),
        });
    }
    if !parts.is_empty() {
        let _ = writeln!(text, "\n{}", parts.join(" · "));
    }
}

fn held_up_by(status: &Status, style: Style, text: &mut String) {
    if status.held_up_by.is_empty() {
        return;
    }
    text.push_str("\nheld up by\n");
    for blocker in status.held_up_by.iter().take(LINES_MAX) {
        let message = first_screen(&clean(&blocker.message));
        let message = wrap(&message, "    ");
        let message = if blocker.critical { style.bad(&message) } else { style.notable(&message) };
        let _ = writeln!(text, "  {message}");
        let _ = writeln!(text, "    {}", wrap(&clean(&blocker.advice), "    "));
    }
    more(status.held_up_by.len(), "causes: --output json has them all", text);
}

/// An answer may be long; its beginning says what it is.
fn first_screen(text: &str) -> String {
    const CHARACTERS_MAX: usize = 150;
    if text.chars().count() <= CHARACTERS_MAX {
        return text.to_owned();
    }
    let kept: String = text.chars().take(CHARACTERS_MAX - 1).collect();
    format!("{kept}…")
}
