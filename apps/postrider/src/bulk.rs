//! Changes of many deliveries at once: choose them, show them, ask, and submit exactly those.
//!
//! Invariant: what is submitted is what was counted and shown; a row that matches later is not in it.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, IsTerminal as _};

use clap::Args;
use postrider_core::operate::{Note, RowKey, Submission, Verb};
use postrider_core::{Destination, DestinationId, Timestamp};

use crate::confirm::{self, Answer};
use crate::failure::{Exit, Failure};
use crate::filter::FilterArgs;
use crate::follow::{self, WaitArgs};
use crate::global::{Global, Store};
use crate::output::{self, Format};
use crate::shape::{Affected, Plan, PlanGroup};
use crate::table::Table;
use crate::terminal::{self, count, note};

/// Deliveries that one command changes at most: 24 MB of numbers. A filter makes several of them.
const SELECTED_MAX: usize = 1_000_000;

/// Rows that are shown before the question.
const FIRST: usize = 5;

/// Kinds of rows that are shown before the question.
const GROUPS_SHOWN: usize = 10;

/// Which deliveries.
#[derive(Args, Clone, Debug)]
pub(crate) struct SelectArgs {
    /// These events
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Everything that there is
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
}

impl SelectArgs {
    /// Refuses what would match everything and does not say so.
    ///
    /// # Errors
    /// If neither an id, nor a filter, nor `--all` is given.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let everything = self.filter.at(Timestamp::now()).is_everything();
        if self.all || !self.ids.is_empty() || !everything {
            return Ok(());
        }
        Err(Failure::plain("neither an id nor a filter is given")
            .advice("Nothing was changed. Name events, add a filter like --type, or write --all.")
            .exit_as(Exit::Usage))
    }
}

/// How it is done.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "How")]
pub(crate) struct ActArgs {
    /// Show what would be changed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    wait: WaitArgs,
}

/// The deliveries that were chosen.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    rows: Vec<RowKey>,
    seen: HashSet<RowKey>,
    names: BTreeMap<String, DestinationId>,
    groups: BTreeMap<(String, Option<String>, String), u64>,
    first: Vec<Affected>,
}

impl Selection {
    /// Takes one in, once.
    ///
    /// # Errors
    /// If there are too many.
    pub(crate) fn add(
        &mut self,
        destination: &DestinationId,
        row: Affected,
    ) -> Result<(), Failure> {
        // One text for each destination, however many rows name it.
        let name = self.names.entry(row.destination.clone()).or_insert_with(|| destination.clone());
        let key = RowKey { destination: name.clone(), seq: row.seq };
        if !self.seen.insert(key.clone()) {
            return Ok(());
        }
        if self.rows.len() == SELECTED_MAX {
            return Err(Failure::plain(format!(
                "more than {} deliveries match",
                count(SELECTED_MAX as u64)
            ))
            .advice(
                "Nothing was changed. Narrow the filter, by --until or --type, and go on after.",
            ));
        }
        self.rows.push(key);
        let kind = (row.destination.clone(), row.event_type.clone(), row.reason.clone());
        *self.groups.entry(kind).or_default() += 1;
        if self.first.len() < FIRST {
            self.first.push(row);
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    fn plan(&self, verb: &str) -> Plan {
        let mut by: Vec<PlanGroup> = self
            .groups
            .iter()
            .map(|((destination, event_type, reason), count)| PlanGroup {
                count: *count,
                destination: destination.clone(),
                event_type: event_type.clone(),
                reason: reason.clone(),
            })
            .collect();
        by.sort_by_key(|group| std::cmp::Reverse(group.count));
        let count = self.rows.len() as u64;
        Plan { verb: verb.to_owned(), count, by, first: self.first.clone() }
    }
}

/// What is to be done with them.
pub(crate) struct Change {
    /// The command's verb.
    pub(crate) verb: &'static str,
    /// What one is called, and several.
    pub(crate) nouns: (&'static str, &'static str),
    /// The request for some of them.
    pub(crate) of: fn(Vec<RowKey>) -> Verb,
    /// For the audit.
    pub(crate) note: Note,
}

impl Change {
    fn counted(&self, number: usize) -> String {
        let noun = if number == 1 { self.nouns.0 } else { self.nouns.1 };
        format!("{} {noun}", count(number as u64))
    }
}

/// Shows, asks, submits, and follows.
///
/// # Errors
/// If there is nobody to ask, and what the store says.
pub(crate) async fn perform(
    store: &Store,
    global: &Global,
    act: ActArgs,
    selection: Selection,
    change: Change,
) -> Result<Exit, Failure> {
    let plan = selection.plan(change.verb);
    let counted = change.counted(selection.len());
    if act.dry_run {
        preview(&plan, &format!("{counted} would be changed by {}:", change.verb));
        global.out().one(&plan, || format!("{}\n", plan.count))?;
        return Ok(Exit::Success);
    }
    if selection.len() == 0 {
        note("nothing matches: nothing was changed");
        if global.output != Format::Table {
            global.out().rows::<crate::shape::Request>(Vec::new())?;
        }
        return Ok(Exit::Success);
    }
    preview(&plan, &format!("{}: {counted}", change.verb));
    if let Answer::Stop(exit) =
        confirm::yes(act.yes, &format!("{} {counted}?", change.verb)).await?
    {
        return Ok(exit);
    }
    let submissions = selection
        .rows
        .chunks(Submission::ROWS_MAX)
        .map(|rows| Submission { verb: (change.of)(rows.to_vec()), note: change.note.clone() })
        .collect();
    follow::submit(store, global, act.wait, submissions).await
}

/// What would be changed, on standard error.
fn preview(plan: &Plan, heading: &str) {
    note(heading);
    if plan.count == 0 {
        return;
    }
    let stderr = io::stderr();
    let width = output::width(&stderr, stderr.is_terminal()).map(|width| width.saturating_sub(2));
    let now = Timestamp::now();
    let shown = |table: Table<'_>| {
        let text = table.render(width, terminal::style(), true);
        text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
    };
    let groups = plan.by.iter().take(GROUPS_SHOWN);
    note(&shown(Table::of(groups, now)));
    if plan.by.len() > GROUPS_SHOWN {
        note(&format!("  and {} more kinds", plan.by.len() - GROUPS_SHOWN));
    }
    note(if plan.first.len() as u64 == plan.count { "these:" } else { "the first of them:" });
    note(&shown(Table::of(&plan.first, now)));
    let unrouted = plan.by.iter().any(|group| group.destination == Destination::UNROUTED);
    if unrouted && plan.verb == "redrive" {
        note(
            "no route leads from unrouted: its dead letters would be dead again. What helps: \
             postrider explain PR-1202",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seq: u64, reason: &str) -> Affected {
        Affected {
            destination: "default".into(),
            seq,
            id: None,
            event_type: Some("order.placed".into()),
            key: "order/1".into(),
            reason: reason.into(),
            created_at: None,
        }
    }

    #[test]
    fn a_delivery_is_counted_once() {
        let destination = DestinationId::new("default").unwrap();
        let mut selection = Selection::default();
        for (seq, reason) in [(1, "gave_up"), (2, "rejected"), (1, "gave_up"), (3, "rejected")] {
            selection.add(&destination, row(seq, reason)).unwrap();
        }
        let plan = selection.plan("redrive");
        assert_eq!((plan.count, plan.first.len(), selection.rows.len()), (3, 3, 3));
        let kinds: Vec<(u64, &str)> = plan.by.iter().map(|g| (g.count, &*g.reason)).collect();
        assert_eq!(kinds, [(2, "rejected"), (1, "gave_up")]);
    }
}
