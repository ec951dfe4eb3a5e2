//! The ledger: what the evidence comes to, judged, for people and for programs.

use std::fmt::Write as _;
use std::time::Duration;

use postrider_core::Invariant;
use postrider_history::{Ledger, Verdict, check};

use crate::demo::evidence::Evidence;
use crate::demo::plan::Plan;
use crate::demo::tally::Fault;
use crate::failure::Failure;
use crate::terminal::{Style, count, wrap};

/// The promises that a demo can judge: for the others it has no evidence.
const JUDGED: [Invariant; 4] =
    [Invariant::NoLoss, Invariant::NoGhost, Invariant::KeyOrder, Invariant::OneEffect];

/// How many broken promises are shown one by one.
const SHOWN_MAX: usize = 10;

/// The judgement over one demo.
#[derive(Debug)]
pub(crate) struct Judgement {
    evidence: Evidence,
    ledger: Ledger,
    verdict: Verdict,
    faults: Vec<(Fault, u64)>,
}

impl Judgement {
    /// Judges the evidence.
    pub(crate) fn over(evidence: Evidence, faults: Vec<(Fault, u64)>) -> Judgement {
        let ledger = evidence.history.ledger();
        let verdict = check(&evidence.history);
        Judgement { evidence, ledger, verdict, faults }
    }

    /// Whether every promise held, on evidence that could have shown otherwise.
    pub(crate) fn holds(&self) -> bool {
        let judged = JUDGED.iter().all(|invariant| self.verdict.judged(*invariant) > 0);
        let struck = self.faults.iter().all(|(_, times)| *times > 0);
        let Evidence { unmatched, unacted, strayed, .. } = self.evidence;
        let complete = unmatched == 0 && unacted == 0 && strayed == 0;
        judged && struck && complete && self.verdict.holds() && self.ledger.is_clean()
    }

    /// The eight numbers as one line of JSON.
    ///
    /// # Errors
    /// Never, as far as is known.
    pub(crate) fn to_json(&self) -> Result<String, Failure> {
        serde_json::to_string(&self.ledger).map_err(|e| Failure::plain(e.to_string()))
    }

    /// The whole judgement for people.
    pub(crate) fn render(&self, plan: &Plan, took: Duration, style: Style) -> String {
        let mut text = String::new();
        let seconds = took.as_secs_f64();
        let _ =
            writeln!(text, "{} orders, seed {}, {seconds:.1} s\n", plan.orders.len(), plan.seed);
        self.render_faults(&mut text, style);
        let _ = writeln!(text, "What the shop, the broker, and the handlers say");
        for (name, number, meaning) in self.sums() {
            let _ = writeln!(text, "  {name:<20}{:>9}  {}", count(number), style.dim(meaning));
        }
        let _ = writeln!(text, "\nWhat was promised");
        for (right, promise, facts) in self.promises() {
            let line = wrap(&format!("{promise} (on {} facts)", count(facts)), "    ");
            let _ = writeln!(text, "  {} {line}", mark(right, style));
        }
        for violation in self.verdict.violations.iter().take(SHOWN_MAX) {
            let _ = writeln!(text, "    {}", wrap(&violation.to_string(), "      "));
        }
        let more = self.verdict.violations.len().saturating_sub(SHOWN_MAX);
        if more > 0 {
            let _ = writeln!(text, "    and {more} more");
        }
        let end = match self.holds() {
            true => style.good("Every promise held."),
            false => style.bad("The demo failed: see each ✗ above."),
        };
        let _ = write!(text, "\n{end}");
        text
    }

    fn render_faults(&self, text: &mut String, style: Style) {
        if self.faults.is_empty() {
            let _ = writeln!(text, "No faults were planned.\n");
            return;
        }
        let _ = writeln!(text, "What was done to it");
        for (fault, times) in &self.faults {
            let happened = match times {
                0 => " (planned, and did not happen)".to_owned(),
                1 => String::new(),
                times => format!(" ({} times)", count(*times)),
            };
            let _ = writeln!(text, "  {} {}{happened}", mark(*times > 0, style), fault.label());
        }
        text.push('\n');
    }

    fn sums(&self) -> [(&'static str, u64, &'static str); 10] {
        let ledger = &self.ledger;
        [
            ("committed", ledger.committed, "events of committed transactions"),
            ("rolled back", self.evidence.rolled_back, "events of transactions rolled back"),
            ("delivered", ledger.delivered, "of the committed, in the broker's log"),
            ("dead-lettered", ledger.dead_lettered, "refused for good, kept with the reason"),
            ("parked", self.evidence.parked, "waiting behind a dead letter of their key"),
            ("duplicates absorbed", ledger.duplicates_absorbed, "delivered again, acted on once"),
            ("effects", ledger.effects, "charges made and mails sent"),
            ("lost", ledger.lost, "neither delivered nor waiting"),
            ("ghosts", ledger.ghosts, "delivered, and never committed"),
            ("order violations", ledger.order_violations, "out of their key's order"),
        ]
    }

    /// Each promise: whether it held, its words, and on how many facts it was judged.
    fn promises(&self) -> Vec<(bool, String, u64)> {
        let broken = self.verdict.broken();
        let mut promises: Vec<(bool, String, u64)> = JUDGED
            .into_iter()
            .map(|invariant| {
                let facts = self.verdict.judged(invariant);
                let right = facts > 0 && !broken.contains(&invariant);
                (right, format!("{invariant} {}", invariant.promise()), facts)
            })
            .collect();
        let both = "orders and outbox name the same events: one transaction wrote both";
        promises.push((self.evidence.unmatched == 0, both.to_owned(), self.ledger.committed));
        let acted = "every payment that arrived was charged, every shipment mailed";
        promises.push((self.evidence.unacted == 0, acted.to_owned(), self.ledger.effects));
        let isolated = "nothing waits but the refused event and its key's successors";
        let waiting = self.ledger.dead_lettered + self.evidence.parked;
        promises.push((self.evidence.strayed == 0, isolated.to_owned(), waiting));
        promises
    }
}

fn mark(right: bool, style: Style) -> String {
    if right { style.good("✓") } else { style.bad("✗") }
}
