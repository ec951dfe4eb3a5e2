//! Pages that repeat what the code says: they are compared with it, so that neither moves alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postrider::file::FileOptions;
use postrider::inbox::ConsumerOptions;
use postrider::local::{LocalOptions, PurgeOptions, SubscribeOptions};
use postrider::relay::Settings;
use postrider::webhook::WebhookSettings;
use postrider::{Code, EventLimits, Invariant, RetryPolicy, WindowLimits};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A page of the repository.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// On one line, without the marks of quotations.
fn plain(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim_start_matches("> "));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// Headings of the second level, each with its text.
fn sections(page: &str) -> BTreeMap<&str, &str> {
    let parts = page.split("\n## ").skip(1);
    parts.map(|part| part.split_once('\n').unwrap_or((part, ""))).collect()
}

#[test]
fn every_operator_code_has_its_page_and_a_line_in_the_list() {
    let list = read("docs/reference/errors.md");
    for code in Code::ALL {
        assert_eq!(read(&format!("docs/reference/errors/{code}.md")), code.page(), "{code}");
        assert!(list.contains(&format!("[{code}](errors/{code}.md)")), "{code}");
    }
    let files = std::fs::read_dir(root().join("docs/reference/errors")).unwrap();
    assert_eq!(files.count(), Code::ALL.len(), "a page without a code");
}

/// R004: the page of guarantees words each invariant as the code does.
#[test]
fn every_invariant_stands_on_the_page_of_guarantees() {
    for path in ["docs/guide/guarantees.md", "README.md"] {
        let page = plain(&read(path)).to_lowercase();
        for invariant in Invariant::ALL {
            assert!(page.contains(&format!("| {} ", invariant.to_string().to_lowercase())));
        }
    }
    let page = plain(&read("docs/guide/guarantees.md")).to_lowercase();
    for invariant in Invariant::ALL {
        assert!(page.contains(&invariant.promise().to_lowercase()), "{invariant}");
    }
}

trait Shown {
    fn shown(&self) -> String;
}

impl Shown for Duration {
    fn shown(&self) -> String {
        let millis = self.as_millis();
        match millis {
            _ if millis.is_multiple_of(86_400_000) => format!("{} d", millis / 86_400_000),
            _ if millis.is_multiple_of(60_000) && millis > 60_000 => {
                format!("{} min", millis / 60_000)
            }
            _ if millis.is_multiple_of(1_000) => format!("{} s", millis / 1_000),
            _ => format!("{millis} ms"),
        }
    }
}

/// A number with a comma for each thousand, or whole binary units.
fn number(value: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = UNITS.iter().find(|(size, _)| value >= 16 * 1_024 && value.is_multiple_of(*size));
    if let Some((size, name)) = unit {
        return format!("{} {name}", value / size);
    }
    let digits = value.to_string();
    let head = digits.len() % 3;
    let mut groups: Vec<&str> = Vec::new();
    if head > 0 {
        groups.push(&digits[..head]);
    }
    groups.extend((head..digits.len()).step_by(3).map(|at| &digits[at..at + 3]));
    groups.join(",")
}

macro_rules! shown_as_number {
    ($($type:ty),+) => { $(impl Shown for $type {
        fn shown(&self) -> String { number(*self as u64) }
    })+ };
}
shown_as_number!(u16, u32, u64, usize);

impl Shown for Option<u64> {
    fn shown(&self) -> String {
        self.map_or_else(|| "none".to_owned(), |number| number.shown())
    }
}

impl Shown for f64 {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for bool {
    fn shown(&self) -> String {
        if *self { "on" } else { "off" }.to_owned()
    }
}

/// Compares a type's defaults with the table in its section. Names all fields, so a new one does not
/// compile until it stands here, and then on the page; those behind `except` are no limits.
macro_rules! compare {
    ($page:expr, $title:literal, $type:ident: $($field:ident)+ $(; except $($other:ident)+)?) => {{
        let $type { $($field,)+ $($($other: _,)+)? } = $type::default();
        let expected = vec![$((stringify!($field).to_owned(), $field.shown())),+];
        let title = format!("{}: `{}`", $title, stringify!($type));
        assert_eq!(table(&$page, &title), expected, "{title}");
    }};
}

/// The first two columns of the table in a section.
fn table(page: &str, title: &str) -> Vec<(String, String)> {
    let sections = sections(page);
    let section = sections.get(title).unwrap_or_else(|| panic!("no section {title}"));
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let mut next = || cells.next().unwrap_or_default().to_owned();
        (next().trim_matches('`').to_owned(), next())
    })
    .collect()
}

/// INV-6: every limit stands on the page, with the default that the code has.
#[test]
fn the_page_of_limits_has_every_limit_and_its_default() {
    let page = read("docs/reference/limits.md");
    compare!(page, "One event", EventLimits:
        payload_bytes_max headers_bytes_max headers_max key_bytes_max message_bytes_max name_bytes_max);
    compare!(page, "What a relay reads ahead", WindowLimits:
        rows_max bytes_max total_bytes_max memory_bytes_max page_rows_max page_bytes_max);
    compare!(page, "Times and bounds of a relay", Settings:
        lease heartbeat publish_deadline margin store_deadline poll_min poll_max nudge save_after due_every
        due_rows_max waiting_max range_after carry_every carry_rows_max pause_min pause_max down_after held_keys
        held_rows drain stall;
        except in_step window retention seed);
    compare!(page, "Webhooks", WebhookSettings:
        deadline connections connections_per_endpoint idle answer_bytes_max request_bytes_max;
        except endpoints urls allow_private allow_http extra_roots);
    compare!(page, "Retries", RetryPolicy: attempts_max delay_min delay_max factor);
    compare!(page, "A consumer", ConsumerOptions:
        in_flight_max prefetch_max receive_max held_bytes_max lane_max away_max deliveries_max
        handler_time_max cancel_grace settle_timeout return_delay_min return_delay
        store_failures_max pause_max; except retry);
    compare!(page, "The local broker's file", LocalOptions:
        busy_wait file_bytes_max document_bytes_max topics_max groups_max);
    compare!(page, "A local subscription", SubscribeOptions:
        visibility deliveries_max unsettled_max receive_bytes_max; except start);
    compare!(page, "The local broker's retention", PurgeOptions: older_than rows_max unread);
    compare!(page, "Files and standard output", FileOptions: line_bytes_max);
}

/// The comparison would notice: another number, a missing row.
#[test]
fn a_page_that_moved_alone_is_noticed() {
    let page = read("docs/reference/limits.md");
    let title = "What a relay reads ahead: `WindowLimits`";
    let right = table(&page, title);
    assert_eq!(right.len(), 6);
    assert_ne!(table(&page.replace("| 8,192 |", "| 8,191 |"), title), right);
    assert_ne!(table(&page.replace("| `page_rows_max` |", "| |"), title), right);
}

/// A page of the documentation, by its path in the repository.
fn pages() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|end| end == "md") => found.push(path),
                false => {}
            }
        }
    }
    found
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut checked = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = page.parent().unwrap().join(target);
            assert!(path.exists(), "{}: {link}", page.display());
            checked += 1;
        }
    }
    assert!(checked > 10, "only {checked} links were found");
}

/// R059: what is hot, and what transactions and streams cost, stands on the page about growing, with a figure for each
/// limit and each step.
#[test]
fn the_page_about_growing_has_the_limits_and_the_costs() {
    let page = read("docs/operate/scale.md");
    let sections = sections(&page);
    let has = |title: &str, name: &str| {
        let mut rows = sections[title].lines().filter(|line| line.starts_with("| "));
        let row = rows.find(|row| row.split('|').nth(1).is_some_and(|first| first.contains(name)));
        let row = row.unwrap_or_else(|| panic!("{title}: {name}"));
        assert!(row.contains(|c: char| c.is_ascii_digit()), "no figure: {row}");
    };
    for step in ["the event's item", "stream record", "the mark", "**together**"] {
        has("What one event costs", step);
    }
    for limit in ["a physical partition", "one partition key", "a shard of the stream", "kept in"] {
        has("Where the limits are", limit);
    }
    let follow = "one for each physical partition and splits it with that";
    assert!(plain(&page).contains(follow), "shards follow the partitions of the table");
}
