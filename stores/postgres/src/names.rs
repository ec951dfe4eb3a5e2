//! What the tables are called, and how a statement comes to speak of them.
//!
//! A statement is written once, in a file, with placeholders for the names: `{outbox_lease}` is a table
//! with its schema, `{name:outbox_lease_owner}` a name alone, `{text:outbox_seq}` the qualified name as a
//! text literal, `{enqueue}` the function that is called `enqueue` beside an outbox of that name,
//! `{channel}` the channel of notifications, and `{schema}` the schema. Names from a configuration are
//! checked here and always quoted, so none of them can end a statement and begin another.

use std::fmt::Write as _;

use postrider_core::{Error, ErrorKind, Result};

/// Where PostgreSQL cuts identifiers.
const IDENTIFIER_BYTES_MAX: usize = 63;

/// Our longest suffix has 26 bytes.
const NAME_BYTES_MAX: usize = 32;

/// The names of the tables.
///
/// Every table of the outbox begins with the outbox's name, every one of the inbox with the inbox's:
/// `outbox`, `outbox_lease`, `outbox_waiting`, … and `inbox`, `inbox_step`, …
///
/// ```
/// use postrider_postgres::Names;
/// let names = Names::new("billing", "outbox", "inbox")?;
/// assert_eq!(names.schema(), "billing");
/// assert!(Names::new("public; drop table x", "outbox", "inbox").is_err());
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Names {
    schema: Box<str>,
    outbox: Box<str>,
    inbox: Box<str>,
}

impl Default for Names {
    /// `postrider.outbox` and `postrider.inbox`.
    fn default() -> Names {
        Names { schema: "postrider".into(), outbox: "outbox".into(), inbox: "inbox".into() }
    }
}

impl Names {
    /// Names of one's own.
    ///
    /// # Errors
    /// `Config` unless each has 1 to 32 characters out of `a-z 0-9 _` and does not begin with a digit,
    /// and outbox and inbox differ.
    pub fn new(schema: &str, outbox: &str, inbox: &str) -> Result<Names> {
        for (what, name) in [("schema", schema), ("outbox", outbox), ("inbox", inbox)] {
            check(what, name)?;
        }
        // Neither may begin with the other, or their further tables could meet.
        if outbox.starts_with(inbox) || inbox.starts_with(outbox) {
            return Err(Error::new(ErrorKind::Config, "name tables")
                .message("the outbox's name and the inbox's must not begin with each other"));
        }
        Ok(Names { schema: schema.into(), outbox: outbox.into(), inbox: inbox.into() })
    }

    /// The schema that the tables are in.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The outbox's name, without its schema.
    pub fn outbox(&self) -> &str {
        &self.outbox
    }

    /// The inbox's name, without its schema.
    pub fn inbox(&self) -> &str {
        &self.inbox
    }

    /// The channel on which commits are told of, `postrider.outbox` by default. A writer in any language
    /// may, after its commit and not in the same transaction, `select pg_notify('postrider.outbox', '')`.
    pub fn channel(&self) -> String {
        let mut channel = format!("{}.{}", self.schema, self.outbox);
        // Two that begin alike hear each other, which wakes a relay once too often.
        channel.truncate(IDENTIFIER_BYTES_MAX);
        channel
    }

    /// A statement with the names in their places.
    pub fn render(&self, statement: &str) -> String {
        let mut text = String::with_capacity(statement.len() + 128);
        let mut rest = statement;
        while let Some(begin) = rest.find('{') {
            text.push_str(&rest[..begin]);
            rest = &rest[begin..];
            match placeholder(rest) {
                Some((form, name)) => {
                    self.put(&mut text, form, name);
                    rest = &rest[form.len() + name.len() + 2..];
                }
                // An array literal, a pattern: none of ours.
                None => {
                    text.push('{');
                    rest = &rest[1..];
                }
            }
        }
        text.push_str(rest);
        text
    }

    fn put(&self, text: &mut String, form: &str, name: &str) {
        if name == "channel" {
            let quote = if form == "text:" { '\'' } else { '"' };
            _ = write!(text, "{quote}{}{quote}", self.channel());
            return;
        }
        let own = match name.strip_prefix("outbox") {
            Some(rest) => format!("{}{rest}", self.outbox),
            None => match name.strip_prefix("inbox") {
                Some(rest) => format!("{}{rest}", self.inbox),
                None if name == "schema" => self.schema.to_string(),
                None if *self.outbox == *"outbox" => name.to_owned(),
                None => format!("{}_{name}", self.outbox),
            },
        };
        // Writing to a string does not fail.
        _ = match form {
            "name:" => write!(text, "\"{own}\""),
            "text:" => write!(text, "'\"{}\".\"{own}\"'", self.schema),
            _ if name == "schema" => write!(text, "\"{}\"", self.schema),
            _ => write!(text, "\"{}\".\"{own}\"", self.schema),
        };
    }
}

/// The form and the name of a placeholder at the beginning of a text.
fn placeholder(text: &str) -> Option<(&str, &str)> {
    let inside = text[1..].split_once('}')?.0;
    let form = ["name:", "text:"].into_iter().find(|form| inside.starts_with(form)).unwrap_or("");
    let name = &inside[form.len()..];
    let known = matches!(name, "schema" | "enqueue" | "channel")
        || name.starts_with("outbox")
        || name.starts_with("inbox");
    let plain =
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    (known && plain).then_some((form, name))
}

fn check(what: &'static str, name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let starts = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    if starts && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Config, "name tables")
        .message(format!(
            "the name of the {what} has 1 to {NAME_BYTES_MAX} characters out of a-z 0-9 _ and does not \
             begin with a digit"
        ))
        .context("name", name.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_they_stand() {
        let names = Names::new("shop", "events", "seen").unwrap();
        let rendered = names.render(
            "select '{}', '{a,b}' from {outbox} join {outbox_lease} on {inbox_step} \
             {name:outbox_due} {text:outbox_seq} {schema} {enqueue}",
        );
        assert_eq!(Names::default().render("{enqueue}"), "\"postrider\".\"enqueue\"");
        assert_eq!(
            rendered,
            "select '{}', '{a,b}' from \"shop\".\"events\" join \"shop\".\"events_lease\" on \
             \"shop\".\"seen_step\" \"events_due\" '\"shop\".\"events_seq\"' \"shop\" \
             \"shop\".\"events_enqueue\""
        );
    }

    #[test]
    fn a_channel_fits_into_an_identifier() {
        let names = Names::new("shop", "events", "seen").unwrap();
        assert_eq!(
            names.render("listen {channel}; select {text:channel}"),
            "listen \"shop.events\"; select 'shop.events'"
        );
        let long = Names::new(&"a".repeat(32), &"b".repeat(32), "c").unwrap();
        assert_eq!(long.channel().len(), 63);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "a".repeat(33);
        for name in ["", "1a", "A", "a-b", "a\"b", "a;b", "ä", "a b", "a\0", &*long] {
            assert_eq!(Names::new(name, "outbox", "inbox").unwrap_err().kind(), ErrorKind::Config);
            assert!(Names::new("s", name, "inbox").is_err(), "{name}");
        }
        assert!(Names::new("s", "box", "box_in").is_err());
    }
}
