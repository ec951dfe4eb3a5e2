//! The statements for one table: what stands in the places `{own:…}`.
//!
//! Invariant: each place is filled once, with names and values that have no braces, so that nothing that
//! is filled in is ever taken for a place itself.

use crate::Names;
use crate::own::checked::{Checked, Column};
use crate::own::mapping::{Mapping, Settled, quoted, text};

const HEAD: &str = include_str!("../../sql/own/part/head.sql");
const MARK_TIME: &str = include_str!("../../sql/own/part/mark_time.sql");
const MARK_STATUS: &str = include_str!("../../sql/own/part/mark_status.sql");
const DELETE: &str = include_str!("../../sql/own/part/delete.sql");
const SINCE: &str = include_str!("../../sql/own/part/since.sql");
const NOTE: &str = include_str!("../../sql/own/part/note.sql");
/// The header of an event whose record is to have no value.
const TOMBSTONE: &str = "kafka-tombstone";

/// What stands in the places of a table's statements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rendering(Vec<(&'static str, String)>);

impl Rendering {
    /// Puts everything in its place. Places within a part are filled after the part.
    pub(crate) fn fill(&self, statement: &str) -> String {
        let mut filled = statement.to_owned();
        for (place, with) in &self.0 {
            if filled.contains(place) {
                filled = filled.replace(place, with);
            }
        }
        filled
    }

    /// What an index on the pending rows takes, without a database.
    pub(crate) fn of_index(mapping: &Mapping) -> Option<Rendering> {
        let (_, table) = mapping.place();
        let pending = pending(mapping, "");
        let order = quoted(mapping.order.as_deref().unwrap_or(&mapping.id));
        mapping.mark()?;
        let name: String = table.chars().take(40).collect();
        Some(Rendering(vec![
            ("{own:index}", quoted(&format!("{name}_pending"))),
            ("{own:table}", of_table(mapping)),
            ("{own:plain_order}", order),
            ("{own:plain_pending}", pending),
        ]))
    }

    /// What the statements for a table take. `compares`: nothing is marked, and the rows since the
    /// comparison began are read, whatever they say.
    pub(crate) fn new(
        names: &Names,
        mapping: &Mapping,
        checked: &Checked,
        compares: bool,
    ) -> Rendering {
        let table = Table { mapping, columns: &checked.columns, store: &checked.store };
        let part = |text: &str| names.render(text.trim_end());
        let number = table.number().map(|column| format!("o.{}", quoted(&column.name)));
        let numbered = number.is_none();
        let seq = number.clone().unwrap_or_else(|| "n.seq".to_owned());
        let name = format!("o.{}::text", quoted(&mapping.id));
        let is_number = match numbered {
            true => format!("o.{} = n.id::{}", quoted(&mapping.id), table.of("id").written),
            false => "true".to_owned(),
        };
        let numbers = part("{outbox_own_number} n");
        let mark = match (&mapping.settled, compares) {
            (_, true) => NOTE,
            (Settled::At { .. }, _) => MARK_TIME,
            (Settled::Status { .. }, _) => MARK_STATUS,
            (Settled::Delete, _) => DELETE,
        };
        let pending = match compares {
            true => format!("{seq}{}", part(SINCE)),
            false => pending(mapping, "o."),
        };
        let standing = match numbered {
            true => format!("{numbers} join {} o on {is_number}", of_table(mapping)),
            false => format!("{} o", of_table(mapping)),
        };
        // A row that was not read yet has no number of ours.
        let is_passed =
            if numbered { "p.id = {own:id}" } else { "p.seq = {own:seq} and p.id = {own:id}" };
        let page_seq = number.unwrap_or_else(|| "o.\"postrider number\"".to_owned());
        // A part comes before the places that stand in it.
        Rendering(vec![
            ("{own:head}", part(HEAD)),
            ("{own:mark}", part(mark)),
            ("{own:columns}", table.event(&seq, "n.at")),
            ("{own:page_columns}", table.event(&page_seq, "o.\"postrider at\"")),
            ("{own:standing}", standing),
            (
                "{own:mark_join}",
                if numbered {
                    format!(" join {numbers} on n.seq = done.seq")
                } else {
                    String::new()
                },
            ),
            ("{own:mark_column}", mapping.mark().map(quoted).unwrap_or_default()),
            ("{own:mark_value}", table.value()),
            ("{own:now}", table.now()),
            ("{own:lock}", lock(mapping, checked.may_lock && !compares).to_owned()),
            ("{own:unpass}", if compares { "false" } else { "true" }.to_owned()),
            ("{own:loop}", by_loop(mapping)),
            ("{own:loop_at}", loop_at(mapping)),
            ("{own:is_passed}", is_passed.to_owned()),
            ("{own:table}", of_table(mapping)),
            ("{own:used}", table.used()),
            ("{own:pending}", pending),
            ("{own:order}", table.order()),
            ("{own:seq}", seq),
            ("{own:id}", table.id()),
            ("{own:name}", name),
            ("{own:is_number}", is_number),
            ("{own:size}", table.size()),
            ("{own:written}", table.written().unwrap_or_else(|| "null::timestamptz".to_owned())),
        ])
    }
}

fn of_table(mapping: &Mapping) -> String {
    let (schema, table) = mapping.place();
    format!("{}.{}", quoted(schema), quoted(table))
}

/// How rows are locked before they are marked, if they are: as the mark itself does it.
fn lock(mapping: &Mapping, locks: bool) -> &'static str {
    match &mapping.settled {
        _ if !locks => "",
        Settled::Delete => " for update of o skip locked",
        _ => " for no key update of o skip locked",
    }
}

/// What a row is while nobody has published it.
fn pending(mapping: &Mapping, of: &str) -> String {
    match &mapping.settled {
        Settled::At { column } => format!("{of}{} is null", quoted(column)),
        Settled::Status { column, pending, .. } => {
            format!("{of}{} = {}", quoted(column), text(pending))
        }
        Settled::Delete => "true".to_owned(),
    }
}

/// What a row is when the application's own loop has published it.
fn by_loop(mapping: &Mapping) -> String {
    match &mapping.settled {
        Settled::At { column } => format!("o.{} is not null", quoted(column)),
        Settled::Status { column, published, .. } => {
            format!("coalesce(o.{} = {}, false)", quoted(column), text(published))
        }
        Settled::Delete => "false".to_owned(),
    }
}

/// When that was, if it says.
fn loop_at(mapping: &Mapping) -> String {
    match &mapping.settled {
        Settled::At { column } => format!("o.{}", quoted(column)),
        _ => "null::timestamptz".to_owned(),
    }
}

/// A UUID as it is written, without braces.
const UUID: &str = "[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}";

struct Table<'a> {
    mapping: &'a Mapping,
    columns: &'a [Column],
    store: &'a str,
}

impl Table<'_> {
    /// The column that is mapped to a key. Those that must be there were found.
    fn of(&self, key: &str) -> Column {
        self.find(key).unwrap_or_else(|| Column {
            name: String::new(),
            of: "text".to_owned(),
            written: "text".to_owned(),
            never_null: false,
            is_unique: false,
            is_computed: false,
        })
    }

    fn find(&self, key: &str) -> Option<Column> {
        let columns = self.mapping.columns();
        let (_, name) = columns.iter().find(|(known, _)| *known == key)?;
        self.columns.iter().find(|column| column.name == *name).cloned()
    }

    /// The column that numbers the rows, if one does.
    fn number(&self) -> Option<Column> {
        self.find("order").filter(Column::is_integer)
    }

    /// What a page is sorted by. Where it does not tell two rows apart, they come as they lie: as one
    /// transaction wrote them, unless it filled gaps.
    fn order(&self) -> String {
        match self.find("order") {
            Some(column) if column.is_integer() => format!("o.{}", quoted(&column.name)),
            Some(column) => format!("o.{}, o.ctid", quoted(&column.name)),
            // The rows of an older transaction first.
            None => "age(o.xmin) desc, o.ctid".to_owned(),
        }
    }

    /// The event's identity, which is a UUID or is derived from what stands there, and from the store: many services have
    /// a table of this name, whose rows are numbered from one.
    fn id(&self) -> String {
        let column = self.of("id");
        let own = format!("o.{}", quoted(&column.name));
        let place = text(&format!("{}/{}/", self.store, self.mapping.table));
        let derived = format!("md5({place} || {own}::text)::uuid");
        match &*column.of {
            "uuid" => own,
            "text" | "varchar" | "bpchar" => format!(
                "case when {own}::text ~* '^{UUID}$' then {own}::text::uuid else {derived} end"
            ),
            _ => derived,
        }
    }

    /// A column as text, or what stands in its place.
    fn word(&self, key: &str, absent: &str) -> String {
        match self.find(key) {
            Some(column) => format!("o.{}::text", quoted(&column.name)),
            None => absent.to_owned(),
        }
    }

    fn time(&self, key: &str) -> Option<String> {
        let column = self.find(key)?;
        let own = format!("o.{}", quoted(&column.name));
        Some(if column.of == "timestamp" { format!("({own} at time zone 'UTC')") } else { own })
    }

    /// Who says it.
    fn source(&self) -> String {
        let own = self.word("source", "null::text");
        match &self.mapping.default_source {
            Some(said) => format!("coalesce({own}, {})", text(said)),
            None => own,
        }
    }

    /// The bytes and the headers of a row, where one without a payload is a tombstone.
    fn entombed(
        &self,
        json: &Option<String>,
        opaque: Option<String>,
        headers: String,
    ) -> (Option<String>, String) {
        if !self.mapping.tombstones {
            return (opaque, headers);
        }
        let each = json.iter().chain(&opaque).map(|own| format!("{own} is null"));
        let nothing = each.collect::<Vec<_>>().join(" and ");
        let bytes = opaque.unwrap_or_else(|| "null::bytea".to_owned());
        (
            Some(format!("case when {nothing} then ''::bytea else {bytes} end")),
            format!(
                "case when {nothing} then jsonb_build_object({}, {}) || {headers} else {headers} end",
                text(TOMBSTONE),
                text("true")
            ),
        )
    }

    /// When a row was written, if it says.
    fn written(&self) -> Option<String> {
        self.time("created_at").or_else(|| self.time("occurred_at"))
    }

    /// The version; -1, which no event has, of one that no integer can be: a cast would refuse the whole page.
    fn version(&self) -> String {
        let Some(column) = self.find("event_version") else { return "1::integer".to_owned() };
        let own = format!("o.{}", quoted(&column.name));
        match &*column.of {
            "int8" => format!(
                "case when {own} between 0 and 2147483647 then {own}::integer \
                 when {own} is not null then -1 end"
            ),
            _ => format!("{own}::integer"),
        }
    }

    /// The columns of an event, in the order in which they are read. No value of a type that is accepted raises
    /// an error here: it would be that of all rows. `read_at`: when the row was read
    /// first, where it does not say when it was written.
    fn event(&self, seq: &str, read_at: &str) -> String {
        let bytes = self.find("payload").is_some_and(|column| column.of == "bytea");
        let (_, table) = self.mapping.place();
        let id = self.id();
        let own = |key: &str| self.find(key).map(|column| format!("o.{}", quoted(&column.name)));
        let json = if bytes { None } else { own("payload") };
        let opaque = if bytes { own("payload") } else { own("payload_bytes") };
        let kind = self.word("aggregate_type", &text(table));
        let headers = own("headers").map_or_else(
            || "jsonb_build_object()".to_owned(),
            |own| format!("coalesce({own}, jsonb_build_object())"),
        );
        let (opaque, headers) = self.entombed(&json, opaque, headers);
        let media = match (bytes, &opaque, &json) {
            (true, ..) => text("application/octet-stream"),
            (_, Some(_), Some(json)) => format!(
                "case when {json} is null then {} else {} end",
                text("application/octet-stream"),
                text("application/json")
            ),
            (_, Some(_), None) => text("application/octet-stream"),
            _ => text("application/json"),
        };
        let created = self.written().unwrap_or_else(|| read_at.to_owned());
        let occurred = self.time("occurred_at").unwrap_or_else(|| created.clone());
        [
            (format!("({seq})::bigint"), "seq"),
            (id.clone(), "id"),
            (self.source(), "source"),
            (kind.clone(), "aggregate_type"),
            (self.word("aggregate_id", &format!("({id})::text")), "aggregate_id"),
            (self.word("key", "null::text"), "key"),
            (self.word("event_type", &kind), "event_type"),
            (self.version(), "event_version"),
            (json.map_or_else(|| "null::text".to_owned(), |own| format!("{own}::text")), "payload"),
            (opaque.unwrap_or_else(|| "null::bytea".to_owned()), "payload_bytes"),
            (self.word("content_type", &media), "content_type"),
            ("null::text".to_owned(), "encoding"),
            (headers, "headers"),
            (self.word("tenant", "null::text"), "tenant"),
            ("1::smallint".to_owned(), "format"),
            (format!("{occurred}::timestamptz"), "occurred_at"),
            (format!("{created}::timestamptz"), "created_at"),
            ("null::timestamptz".to_owned(), "erased_at"),
        ]
        .map(|(value, name)| format!("{value} as {name}"))
        .join(", ")
    }

    /// Every column that is read, once.
    fn used(&self) -> String {
        let mut names: Vec<&str> = self.mapping.columns().iter().map(|(_, name)| *name).collect();
        names.sort_unstable();
        names.dedup();
        let all: Vec<String> = names.iter().map(|name| format!("o.{}", quoted(name))).collect();
        all.join(", ")
    }

    /// What a row weighs as it is stored, without unpacking it.
    fn size(&self) -> String {
        let of = |key: &str| {
            self.find(key).map_or(String::new(), |column| {
                format!(" + coalesce(pg_column_size(o.{}), 0)", quoted(&column.name))
            })
        };
        format!("(256{}{})::bigint", of("payload"), of("payload_bytes"))
    }

    /// The time of a mark. A time without a zone is in UTC, as it is read.
    fn now(&self) -> String {
        match self.find("published_at") {
            Some(column) if column.of == "timestamp" => "clock_timestamp() at time zone 'UTC'",
            _ => "clock_timestamp()",
        }
        .to_owned()
    }

    fn value(&self) -> String {
        match &self.mapping.settled {
            Settled::Status { published, .. } => text(published),
            _ => String::new(),
        }
    }
}
