//! Pages of the reference that repeat what the program says: they are compared with it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::{Shop, out};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Words that begin with two dashes.
fn flags(text: &str) -> BTreeSet<String> {
    let boundary = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    let words = text.split(boundary).filter(|word| word.starts_with("--") && word.len() > 3);
    words.map(str::to_owned).collect()
}

/// The part of a page under a heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let start = page.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let section = &page[start + 4..];
    section.find("\n## ").map_or(section, |end| &section[..end])
}

/// Every flag of a command stands in the reference, and none that there is not.
#[test]
fn the_reference_names_the_flags_of_every_command() {
    let shop = Shop::bare();
    let page = std::fs::read_to_string(root().join("docs/reference/cli.md")).unwrap();
    let shared = flags(section(&page, "What the operators' commands share"));
    let mut seen = BTreeSet::new();
    for (noun, verbs) in NOUNS {
        let mut known = BTreeSet::new();
        for verb in *verbs {
            let args: Vec<&str> =
                [*noun, *verb, "--help"].into_iter().filter(|w| !w.is_empty()).collect();
            let help = out(&shop.run(&args));
            let options = help.split("\nExamples:").next().unwrap();
            known.extend(flags(options));
        }
        known.remove("--help");
        let text = section(&page, &format!("`postrider {noun}`"));
        let own = flags(text);
        for flag in &known {
            assert!(
                own.contains(flag) || shared.contains(flag),
                "{noun}: {flag} is not on the page"
            );
        }
        for flag in &own {
            assert!(known.contains(flag), "{noun}: the page has {flag}, the program has not");
        }
        for verb in verbs.iter().filter(|verb| !verb.is_empty()) {
            assert!(text.contains(&format!("`{noun} {verb}")), "{noun} {verb} is not on the page");
        }
        seen.extend(known);
    }
    for flag in shared {
        assert!(seen.contains(&flag), "the page has {flag}, no command has");
    }
}

const NOUNS: &[(&str, &[&str])] = &[
    ("init", &[""]),
    ("migrate", &["status", "revert"]),
    ("relay", &[""]),
    ("config", &["check", "show", "schema", "brokers"]),
    ("status", &[""]),
    ("doctor", &[""]),
    ("enqueue", &[""]),
    ("outbox", &["ls", "show", "requeue", "cancel"]),
    ("dead", &["ls", "show", "redrive", "discard"]),
    ("queue", &["status", "redrive", "cancel"]),
    ("inbox", &["ls", "show", "forget", "mark-processed"]),
    ("destinations", &["ls", "pause", "resume", "enable", "rewind", "rename", "remove", "apply"]),
    ("partitions", &["ls", "pause", "resume"]),
    ("reconcile", &[""]),
    ("erase", &[""]),
    ("repair", &["sequence"]),
    ("adopt", &[""]),
    ("audit", &[""]),
    ("demo", &[""]),
    ("chaos", &["list", "run"]),
];

/// The page of answers is made from the documents' structs: their comments, fields, and types.
#[test]
fn the_page_of_answers_describes_every_field() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/shape");
    let mut page = String::from(INTRODUCTION);
    for file in ["overview", "event", "waiting", "request", "queue", "inbox", "migration"] {
        let source = std::fs::read_to_string(folder.join(format!("{file}.rs"))).unwrap();
        described(&source, &mut page);
    }
    assert!(page.matches("\n| `").count() > 100, "{page}");
    let path = root().join("docs/reference/answers.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, page, "docs/reference/answers.md differs; BLESS=1 writes it anew");
}

const INTRODUCTION: &str = "\
# Answers

What `--output json` and `--output ndjson` write. Lists are `{\"rows\": […], \"next\": TOKEN}` in `json`, where `next` is the
`--after` of the next page, or `null`; in `ndjson` each row is a line. Everything else is one document. A field that is
there keeps its name and its meaning; new ones may come. Moments are RFC 3339 in UTC, spans are decimals in seconds and
are named `…_seconds`, and what is not known is `null` and never left out. Numbers stay below 2^53, which every JSON
reader keeps exact.
";

/// Writes a section for each struct that is written as JSON.
fn described(source: &str, page: &mut String) {
    let (mut docs, mut document) = (Vec::new(), false);
    let mut inside = false;
    for line in source.lines() {
        let text = line.trim();
        if let Some(doc) = text.strip_prefix("/// ") {
            docs.push(doc.to_owned());
        } else if text.starts_with("#[derive(") {
            document = text.contains("Serialize");
        } else if let Some(name) = text.strip_prefix("pub(crate) struct ").filter(|_| document) {
            let name = name.trim_end_matches(" {");
            let _ = write!(page, "\n## {name}\n\n{}\n\n", wrapped(&docs.join(" ")));
            page.push_str("| Field | Type | Meaning |\n|---|---|---|\n");
            inside = true;
            docs.clear();
        } else if text == "}" {
            inside = false;
            docs.clear();
        } else if let Some((name, kind)) = text.split_once(": ").filter(|_| inside) {
            let name = name.trim_start_matches("pub(crate) ");
            let kind = kind_of(kind.trim_end_matches(','));
            let _ = writeln!(page, "| `{name}` | {kind} | {} |", docs.join(" "));
            docs.clear();
        } else if !text.starts_with("#[") {
            docs.clear();
        }
    }
}

/// The JSON type of a field.
fn kind_of(kind: &str) -> String {
    let inner = |prefix: &str| kind.strip_prefix(prefix).and_then(|rest| rest.strip_suffix('>'));
    if let Some(kind) = inner("Option<") {
        return format!("{} or null", kind_of(kind));
    }
    if let Some(kind) = inner("Vec<") {
        return format!("array of {}", kind_of(kind));
    }
    match kind {
        "u16" | "u32" | "u64" | "f64" => "number".to_owned(),
        "bool" => "boolean".to_owned(),
        "Timestamp" => "moment".to_owned(),
        "Box<RawValue>" => "any".to_owned(),
        "BTreeMap<String, String>" => "object of strings".to_owned(),
        "String" | "EventId" | "&'static str" | "Verdict" | "DestinationState" => {
            "string".to_owned()
        }
        "Status" => "string".to_owned(),
        other => format!("[{other}](#{})", other.to_lowercase()),
    }
}

/// Lines of at most 120 characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().unwrap();
        if line.len() + word.len() + 1 > 118 {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}
