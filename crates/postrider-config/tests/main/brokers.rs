//! The fields of each kind of broker, taken from the listing that programs read: what it says is what is done.

use std::time::Duration;

use postrider_config::duration;
use serde_json::Value;

use crate::{load, load_with, refused, said};

/// A field, and where it stands.
struct Field {
    /// `destinations.NAME.kafka` or `consume.NAME.kafka`.
    table: String,
    /// The head of a file in which its kind has a meaning.
    head: String,
    listed: Value,
}

impl Field {
    fn text(&self, word: &str) -> &str {
        self.listed[word].as_str().unwrap_or_default()
    }

    fn name(&self) -> String {
        format!("{}.{}", self.table, self.text("name"))
    }

    /// A file with this value, and the line in which it stands.
    fn file(&self, value: &str) -> (String, usize) {
        let text = format!("{}{}{} = {value}\n", self.head, self.table(), self.text("name"));
        let line = text.lines().count();
        let others = self.others();
        (text + &others, line)
    }

    fn table(&self) -> String {
        let inner = if self.table.ends_with("endpoints") { ".one" } else { "" };
        let url = "url = \"https://hooks.example/in\"\n";
        let url = if inner.is_empty() || self.text("name") == "url" { "" } else { url };
        format!("[{}{inner}]\n{url}", self.table.replace("NAME", "a"))
    }

    /// What must stand beside it, so that it is the only thing that may be wrong.
    fn others(&self) -> String {
        let mut lines = String::new();
        for other in self.listed["needs"].as_array().into_iter().flatten() {
            lines.push_str(match other.as_str().unwrap() {
                "user" => "user = \"relay\"\n",
                "password" => "password = \"env:PASSWORD\"\n",
                "mechanism" => "mechanism = \"plain\"\n",
                "access_key" => "access_key = \"AKIAEXAMPLE\"\n",
                "secret_key" => "secret_key = \"env:PASSWORD\"\n",
                "tls" => "tls = true\n",
                "certificate" => "certificate = \"/etc/relay.pem\"\n",
                "certificate_key" => "certificate_key = \"/etc/relay.key\"\n",
                other => panic!("say what goes with {}: {other}", self.name()),
            });
        }
        // The identity of Kafka is in three parts, and a certificate of Kafka needs TLS.
        if self.table.ends_with("kafka") {
            match self.text("name") {
                "password" => lines.push_str("mechanism = \"plain\"\n"),
                "mechanism" => lines.push_str("password = \"env:PASSWORD\"\n"),
                "certificate_key" => lines.push_str("tls = true\n"),
                _ => {}
            }
        }
        if self.name() == "destinations.NAME.webhook.connections" {
            lines.push_str("connections_per_endpoint = 1\n");
        }
        for bound in self.listed["at_most"].as_array().into_iter().flatten() {
            lines.push_str(match bound["key"].as_str().unwrap() {
                "relay.publish_deadline" => "",
                "timeout" => "timeout = \"5m\"\n",
                "connections" => "connections = 4096\n",
                other => panic!("say what bounds {}: {other}", self.name()),
            });
        }
        lines
    }
}

/// The fields of all kinds.
fn fields() -> Vec<Field> {
    let mut fields = Vec::new();
    for kind in postrider_config::brokers().as_array().unwrap() {
        let word = kind["kind"].as_str().unwrap();
        for (part, from) in [("destination", "url"), ("source", "from")] {
            let example = kind[part][from]["example"].as_str();
            for table in kind[part]["tables"].as_array().into_iter().flatten() {
                let head = match (part, example) {
                    ("source", Some(example)) => format!(
                        "[consume.a]\nfrom = \"{example}\"\ninbox = \"sqlite://b.db\"\n\
                         endpoint = \"http://127.0.0.1:1/\"\n"
                    ),
                    (_, Some(url)) => {
                        format!("[destinations.a]\nkind = \"{word}\"\nurl = \"{url}\"\n")
                    }
                    _ => format!(
                        "[destinations.a]\nkind = \"{word}\"\nroutes = [{{ topic = \"one\" }}]\n\
                         endpoints.two.url = \"https://hooks.example/in\"\n"
                    ),
                };
                let name = table["table"].as_str().unwrap();
                let head = if name.ends_with("endpoints") {
                    head.replace("endpoints.two.url = \"https://hooks.example/in\"\n", "")
                } else {
                    head.replace("\"one\"", "\"two\"")
                };
                // Long enough for whatever is bound by the relay's own deadline.
                let relay =
                    "[relay]\nlease = \"10m\"\nheartbeat = \"1s\"\npublish_deadline = \"5m\"\n";
                for field in table["fields"].as_array().unwrap() {
                    fields.push(Field {
                        table: name.to_owned(),
                        head: format!("{relay}{head}"),
                        listed: field.clone(),
                    });
                }
            }
        }
    }
    fields
}

/// The value itself, and the nearest one outside, both as they stand in a file.
fn edge(field: &Field, limit: &str, step: i64) -> (String, Option<String>) {
    let quoted = |text: String| format!("\"{text}\"");
    match field.text("type") {
        "duration" => {
            let span = duration::parse(limit).unwrap();
            let one = Duration::from_millis(1);
            let next = if step < 0 { span.checked_sub(one) } else { span.checked_add(one) };
            (quoted(limit.to_owned()), next.map(|next| quoted(duration::print(next))))
        }
        "size" => {
            let size: postrider_config::Size = limit.parse().unwrap();
            let next = size.bytes().checked_add_signed(step);
            (quoted(limit.to_owned()), next.map(|next| format!("\"{next}B\"")))
        }
        "number" => {
            let number: i64 = limit.parse().unwrap();
            (limit.to_owned(), Some((number + step).to_string()))
        }
        // So many entries.
        kind => {
            let count: usize = limit.parse().unwrap();
            let value = |count: usize| {
                let entries = (0..count).map(|n| match field.text("holds") {
                    "list" => format!("\"env:V{n}\""),
                    "table" => format!("x-{n} = \"env:V{n}\""),
                    other => panic!("{}: {kind} {other}", field.name()),
                });
                let entries = entries.collect::<Vec<_>>().join(", ");
                match field.text("holds") {
                    "list" => format!("[{entries}]"),
                    _ => format!("{{ {entries} }}"),
                }
            };
            (value(count), Some(value(count + 1)))
        }
    }
}

/// F31: for every field of every broker that has limits, the limit is taken, and what is just outside is refused with
/// file, line, and what to write.
#[test]
fn limits_are_what_the_listing_says() {
    let mut seen = 0;
    for field in fields() {
        for (word, step) in [("min", -1), ("max", 1)] {
            let limit = field.text(word);
            if limit.is_empty() {
                continue;
            }
            let (inside, outside) = edge(&field, limit, step);
            let (text, _) = field.file(&inside);
            let read = load_with(&text, &[]);
            let problems = read.map_or_else(|problems| said(&problems), |_| String::new());
            assert_eq!(problems, "", "{} = {inside}", field.name());
            // Below nothing there is nothing.
            let Some(outside) = outside else { continue };
            let (text, line) = field.file(&outside);
            let said = refused(&text, &[]);
            let place = format!("postrider.toml:{line}:");
            assert!(said.starts_with(&place), "{}: {place}\n{said}", field.name());
            let advice = match field.text("holds") {
                "" => format!("write {} = {inside}", field.text("name")),
                _ => "leave 1 of them out".to_owned(),
            };
            assert!(said.contains(&advice), "{}: {advice}\n{said}", field.name());
            assert_eq!(said.matches("postrider.toml:").count(), 1, "{said}");
            seen += 1;
        }
    }
    assert!(seen >= 25, "only {seen} limits were tried");
}

/// What a field needs, excludes, or is bound by is refused where it is broken.
#[test]
fn rules_are_what_the_listing_says() {
    let mut seen = 0;
    for field in fields() {
        let (name, example) = (field.text("name"), field.text("example"));
        let example = match field.text("type") {
            "number" => example.to_owned(),
            "flag" => "true".to_owned(),
            _ => format!("\"{example}\""),
        };
        let alone = format!("{}{}{name} = {example}\n", field.head, field.table());
        for other in field.listed["needs"].as_array().into_iter().flatten() {
            let words = format!("`{name}` is of no use without `{}", other.as_str().unwrap());
            assert!(refused(&alone, &[]).contains(&words), "{words}");
            seen += 1;
        }
        for other in field.listed["excludes"].as_array().into_iter().flatten() {
            let other = other.as_str().unwrap();
            let value = if other == "user" { "relay" } else { "env:OTHER" };
            let both = format!("{alone}{other} = \"{value}\"\n");
            let said = refused(&both, &[]);
            let words = [format!("`{name}` and `{other}`"), format!("`{other}` and `{name}`")];
            assert!(words.iter().any(|words| said.contains(words)), "{words:?}\n{said}");
            seen += 1;
        }
        if field.listed["topic"].is_array() {
            let (text, line) = field.file("\"no topic\"");
            let said = refused(&text, &[]);
            assert!(said.starts_with(&format!("postrider.toml:{line}:")), "{said}");
            assert!(said.contains(&format!("write {name} = {example}")), "{said}");
            seen += 1;
        }
        for bound in field.listed["at_most"].as_array().into_iter().flatten() {
            let key = bound["key"].as_str().unwrap();
            let (text, _) = field.file(&match field.text("type") {
                "number" => "2".to_owned(),
                _ => "\"500ms\"".to_owned(),
            });
            assert!(load_with(&text, &[]).is_ok(), "{text}");
            let text = text
                .replace("publish_deadline = \"5m\"", "publish_deadline = \"499ms\"")
                .replace("timeout = \"5m\"", "timeout = \"1996ms\"")
                .replace("connections = 4096", "connections = 1");
            let said = refused(&text, &[]);
            assert!(said.contains(&format!("`{key}`")) && said.contains("; at most "), "{said}");
            seen += 1;
        }
    }
    assert!(seen >= 50, "only {seen} rules were tried");
}

/// R107: what the listing calls a secret is refused when it is written out, and not repeated; what a reference stands
/// for is not shown.
#[test]
fn secrets_are_what_the_listing_says() {
    let mut seen = 0;
    for field in fields().into_iter().filter(|field| field.listed["secret"] == true) {
        let wrap = |value: &str| match field.text("holds") {
            "list" => format!("[\"{value}\"]"),
            "table" => format!("{{ x-one = \"{value}\" }}"),
            _ => format!("\"{value}\""),
        };
        let literal = match field.text("type") {
            "address" => "https://user:hunter2@hooks.example/",
            _ => "hunter2",
        };
        let said = refused(&field.file(&wrap(literal)).0, &[]);
        assert!(said.contains(&format!("`{}", field.text("name"))), "{said}");
        assert!(!said.contains("hunter2"), "{}\n{said}", field.name());
        let (text, _) = field.file(&wrap("env:HELD"));
        let loaded =
            load_with(&text, &[]).unwrap_or_else(|problems| panic!("{}", crate::said(&problems)));
        let secret = "https://hooks.example/hunter2";
        let environment = [("HELD", secret), ("PASSWORD", secret)].into_iter().collect();
        let (secrets, _) = loaded.resolve(&environment).unwrap();
        let shown = format!("{:?} {loaded:?} {secrets:?}", loaded.values());
        assert!(shown.contains("env:HELD") && !shown.contains("hunter2"), "{}", field.name());
        seen += 1;
    }
    assert!(seen >= 8, "only {seen} secrets were tried");
}

/// Each field is explained, once, and its default and example are taken.
#[test]
fn every_field_is_explained() {
    let fields = fields();
    let mut names: Vec<String> = fields.iter().map(Field::name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), fields.len());
    for field in &fields {
        assert!(field.text("about").len() > 10, "{}", field.name());
        if !field.text("holds").is_empty() {
            continue;
        }
        let texts = [field.text("default"), field.text("example")];
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            let value = match field.text("type") {
                "number" | "flag" => text.to_owned(),
                _ => format!("\"{text}\""),
            };
            load(&field.file(&value).0);
        }
    }
}
