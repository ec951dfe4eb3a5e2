//! What a key is: its name, documentation, form, default, limits, and what changing it means. Reading,
//! environment, JSON Schema, and reference page all follow from these.
//!
//! Invariant: a key is declared in one place, a field inside `section!`, and nowhere listed again.

use postrider_core::TopicRule;

/// What it takes for a changed value to have effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A reload (SIGHUP) suffices.
    Live,
    /// The program must be started again.
    Restart,
    /// It is part of a destination's definition, which stands in the store and is shared by all
    /// relays: `postrider destinations apply --config FILE` changes it.
    Definition,
}

impl Class {
    /// The word for tables and messages.
    pub const fn word(self) -> &'static str {
        match self {
            Class::Live => "live",
            Class::Restart => "restart",
            Class::Definition => "definition",
        }
    }
}

/// One key of one table. Texts are empty where there is nothing to say.
pub(crate) struct Key {
    /// The name in the file.
    pub(crate) name: &'static str,
    /// What it is, in Markdown.
    pub(crate) doc: &'static str,
    /// What its value looks like.
    pub(crate) shape: Shape,
    /// The value when it is absent, as it would stand in the environment.
    pub(crate) default: &'static str,
    /// The least value that is taken.
    pub(crate) min: &'static str,
    /// The greatest; of lists and of tables whose keys are names: how many entries.
    pub(crate) max: &'static str,
    /// An example in place of that of the leaf, as it would stand in the environment.
    pub(crate) example: &'static str,
    /// Refused when absent.
    pub(crate) required: bool,
    /// What changing it means.
    pub(crate) class: Class,
    /// What goes with it, and what does not.
    pub(crate) rules: &'static [Rule],
}

/// What holds between a key and others.
#[derive(Clone, Copy)]
pub(crate) enum Rule {
    /// It is of no use without this other key of its table.
    With(&'static str),
    /// Of these keys of its table one at most is given.
    OneOf {
        keys: &'static [&'static str],
        /// What all of them do.
        does: &'static str,
        /// Why one is enough.
        why: &'static str,
    },
    /// It is at most one of so many parts of another duration or number: of its table, or by the whole path.
    AtMost { key: &'static str, part: u32, why: &'static str },
    /// It is a topic of such a broker, or a name by its rules.
    Topic(TopicRule),
    /// It is the address of servers that are asked over HTTP.
    Hosts,
}

/// Of every broker: what it was asked has an answer while the relay listens.
pub(crate) const BATCH_ENDS: Rule = Rule::AtMost {
    key: "relay.publish_deadline",
    part: 1,
    why: "later its outcome counts as unknown",
};

impl Key {
    pub(crate) const fn new(name: &'static str, doc: &'static str, shape: Shape) -> Key {
        Key {
            name,
            doc,
            shape,
            default: "",
            min: "",
            max: "",
            example: "",
            required: false,
            class: Class::Live,
            rules: &[],
        }
    }

    /// The example to show: its own, its default, or what such values look like.
    pub(crate) fn shown_example(&self) -> String {
        match self.shape.leaf() {
            Some(leaf) if !self.example.is_empty() => leaf.literal(self.example),
            Some(leaf) if !self.default.is_empty() => leaf.literal(self.default),
            Some(leaf) => leaf.literal(leaf.example),
            None => self.example.to_owned(),
        }
    }
}

/// The form of a value.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// A single value.
    Leaf(&'static Leaf),
    /// A table with known keys.
    Table(&'static TableShape),
    /// A table whose keys are names that the writer chooses.
    Map(&'static MapShape),
    /// A list.
    List(&'static Shape),
}

pub(crate) struct TableShape {
    pub(crate) doc: &'static str,
    pub(crate) keys: &'static [Key],
}

pub(crate) struct MapShape {
    /// What a name names, like `destination`.
    pub(crate) what: &'static str,
    /// What stands for the name in documentation, like `NAME`.
    pub(crate) placeholder: &'static str,
    /// The names that are taken, as a regular expression.
    pub(crate) pattern: &'static str,
    /// The form of the values.
    pub(crate) of: Shape,
}

/// A kind of single value.
pub(crate) struct Leaf {
    /// The word of the reference page.
    pub(crate) word: &'static str,
    /// What an error message says was expected.
    pub(crate) expected: &'static str,
    /// As it would stand in the environment.
    pub(crate) example: &'static str,
    /// What it is in JSON.
    pub(crate) json: Json,
    /// Whether what is written here, if it is wrong, may be a secret and is not to be shown.
    pub(crate) secret: bool,
}

impl Leaf {
    /// The value as it stands in the file.
    pub(crate) fn literal(&self, text: &str) -> String {
        match self.json {
            Json::Text(_) | Json::Choice(_) => quoted(text),
            Json::Integer | Json::Number | Json::Flag => text.to_owned(),
        }
    }
}

pub(crate) enum Json {
    /// A string; the regular expression is empty where any will do.
    Text(&'static str),
    /// One of these strings.
    Choice(&'static [&'static str]),
    Integer,
    Number,
    Flag,
}

impl Shape {
    pub(crate) const fn leaf(&self) -> Option<&'static Leaf> {
        match self {
            Shape::Leaf(leaf) => Some(*leaf),
            _ => None,
        }
    }

    /// Whether a secret may stand somewhere inside.
    pub(crate) fn holds_secret(&self) -> bool {
        match self {
            Shape::Leaf(leaf) => leaf.secret,
            Shape::Table(table) => table.keys.iter().any(|key| key.shape.holds_secret()),
            Shape::Map(map) => map.of.holds_secret(),
            Shape::List(of) => of.holds_secret(),
        }
    }

    /// What an error message says was expected.
    pub(crate) fn expected(&self) -> String {
        match self {
            Shape::Leaf(leaf) => leaf.expected.to_owned(),
            Shape::Table(_) => "a table".to_owned(),
            Shape::Map(map) => format!("a table of {}s", map.what),
            Shape::List(Shape::Leaf(leaf)) => {
                format!("a list like [{}]", leaf.literal(leaf.example))
            }
            Shape::List(_) => "a list of tables".to_owned(),
        }
    }
}

/// A text as a TOML string.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown = String::with_capacity(text.len() + 2);
    shown.push('"');
    for c in text.chars() {
        match c {
            '"' => shown.push_str("\\\""),
            '\\' => shown.push_str("\\\\"),
            c if c.is_control() => shown.push_str(&format!("\\u{:04X}", c as u32)),
            c => shown.push(c),
        }
    }
    shown.push('"');
    shown
}

/// A documentation text without the spaces that `///` leaves at the front of its lines, as one
/// line a paragraph.
pub(crate) fn plain(doc: &str) -> String {
    let mut text = String::new();
    for line in doc.lines().map(str::trim) {
        if line.is_empty() {
            text.push('\n');
        } else {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push(' ');
            }
            text.push_str(line);
        }
    }
    text.trim().to_owned()
}
