//! What a test looks at again and again while it waits for other processes. Looks take their time from those who are waited
//! for, so a session is kept, and a record is read on from where it was read to.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use tokio_postgres::{Client, Row};
use uuid::Uuid;

use crate::stage::connect;

/// The shortest pause between two looks, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(200)];

/// Pauses between looks: short ones at first, as much is so at once.
pub(crate) struct Pauses(Duration);

impl Pauses {
    pub(crate) fn new() -> Pauses {
        Pauses(PAUSES[0])
    }

    pub(crate) async fn next(&mut self) {
        // waits: other processes do their part, and tell nobody
        tokio::time::sleep(self.0).await;
        self.0 = PAUSES[1].min(self.0 * 2);
    }
}

/// A session that is kept, with the address that it leads to.
#[derive(Default)]
pub(crate) struct Kept(Option<(String, Client)>);

impl Kept {
    /// What this server says. One that fell since has ended the session, and gets another.
    pub(crate) async fn ask(&mut self, url: &str, statement: &str) -> Vec<Row> {
        let kept = self.0.take().filter(|(to, client)| to == url && !client.is_closed());
        if let Some((to, client)) = kept
            && let Ok(rows) = client.query(statement, &[]).await
        {
            self.0 = Some((to, client));
            return rows;
        }
        let client = connect(url).await;
        let rows = client.query(statement, &[]).await.expect("rows");
        self.0 = Some((url.to_owned(), client));
        rows
    }
}

/// One event as a relay process delivered it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) id: Uuid,
    /// By the relay's clock, in microseconds since 1970.
    pub(crate) at: i64,
}

impl Arrival {
    /// By its line.
    pub(crate) fn of(line: &str) -> Arrival {
        let arrival = || {
            let (id, at) = line.split_once(' ')?;
            Some(Arrival { id: id.parse().ok()?, at: at.parse().ok()? })
        };
        arrival().unwrap_or_else(|| panic!("no arrival: {line:?}"))
    }
}

/// The ids in a record that grows, each line of it read once.
#[derive(Default)]
pub(crate) struct Heard {
    read: u64,
    ids: BTreeSet<Uuid>,
}

impl Heard {
    /// All by now. A last line without an end is none, and is read when it has one.
    pub(crate) fn by_now(&mut self, record: &Path) -> &BTreeSet<Uuid> {
        let Ok(mut record) = File::open(record) else { return &self.ids };
        record.seek(SeekFrom::Start(self.read)).expect("what was read is there");
        let mut text = String::new();
        record.read_to_string(&mut text).expect("it can be read");
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        self.read += whole.len() as u64;
        self.ids.extend(whole.lines().map(|line| Arrival::of(line).id));
        &self.ids
    }

    /// How many of these rows begin with an id that is not among them.
    pub(crate) fn missing(&mut self, record: &Path, rows: &[Row]) -> usize {
        let ids = self.by_now(record);
        rows.iter().filter(|row| !ids.contains(&row.get::<_, Uuid>(0))).count()
    }
}
