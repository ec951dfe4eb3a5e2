//! The way between two cursors: all that lies between them, nothing of it twice, and nothing beyond.

use postrider_core::ErrorKind;
use postrider_core::snapshot::SnapshotCursor;
use postrider_core::source::OutboxSource;
use tokio_postgres::Client;

use super::*;

/// What a reader found in its order, with each place that it stood at, behind so many rows.
struct Reading {
    found: Vec<u64>,
    places: Vec<(usize, Cursor)>,
}

impl Reading {
    fn new() -> Reading {
        Reading { found: Vec::new(), places: vec![(0, beginning())] }
    }

    /// Reads on to the end of what is there. Of so many rows one place is kept.
    async fn go_on(&mut self, play: &Play, rows_max: u32, every: usize) {
        loop {
            let after = self.places.last().unwrap().1.clone();
            let page = play.page(&after, None, rows_max).await;
            for row in &page.rows {
                self.found.push(row.row.seq);
                if self.found.len().is_multiple_of(every) {
                    self.places.push((self.found.len(), row.cursor.clone()));
                }
            }
            self.places.push((self.found.len(), page.end.clone()));
            if !page.more {
                return;
            }
        }
    }

    /// Goes from one place to another by pages of one size, and looks what lies between them.
    async fn check(&self, play: &Play, from: usize, to: usize, rows_max: u32) {
        let ((first, at), (last, until)) = (&self.places[from], &self.places[to]);
        let (mut found, mut at) = (Vec::new(), at.clone());
        loop {
            let page = play.page(&at, Some(until), rows_max).await;
            assert!(page.rows.len() <= rows_max as usize);
            found.extend(page.rows.iter().map(|row| row.row.seq));
            assert_ne!((&page.end, page.more), (&at, true), "it stands still");
            at = page.end;
            if !page.more {
                // Where the other stands at a row, it ends with that row, and not with a look behind it.
                assert!(until.position() == 0 || last == first || !page.rows.is_empty());
                break;
            }
        }
        let mut expected = self.found[*first..*last].to_vec();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "from {from} to {to} by {rows_max}");
        let rest = play.page(&at, Some(until), rows_max).await;
        assert!(rest.rows.is_empty() && !rest.more, "it is there");
        let back = play.page(until, Some(&at), rows_max).await;
        assert!(back.rows.is_empty() && !back.more, "nothing lies behind it");
    }
}

/// Numbers that look like chance, and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

const INSERT: &str = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
    select 'order', 'hot', 't', '{}' from generate_series(1, $N)";

async fn write(client: &Client, play: &Play, rows: usize) {
    let insert = play.fresh.sql(INSERT).replace("$N", &rows.to_string());
    client.batch_execute(&insert).await.expect("insert");
}

/// R007, INV-1: whatever transactions overlap, and wherever the two cursors stand, also in the middle of a target, pages of
/// any size give what the one has not passed and the other has.
#[tokio::test]
async fn the_way_between_two_places_of_a_reading_is_what_was_read_between_them() {
    let Some(play) = Play::new().await else { return };
    let mut dice = Dice(7);
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push((play.fresh.connect().await, false));
    }
    let mut reading = Reading::new();
    for step in 0..160 {
        let place = dice.below(clients.len());
        let (client, is_open) = &mut clients[place];
        match (*is_open, dice.below(4)) {
            // Its number is early, and its rows are late.
            (false, 0) => client.batch_execute("begin; select pg_current_xact_id()").await.unwrap(),
            (false, 1) => client.batch_execute("begin").await.unwrap(),
            (false, _) | (true, 0 | 1) => write(client, &play, 1 + dice.below(3)).await,
            (true, 2) => client.batch_execute("rollback").await.unwrap(),
            (true, _) => client.batch_execute("commit").await.unwrap(),
        }
        let now = "select now() <> statement_timestamp()";
        *is_open = client.query_one(now, &[]).await.expect("it answers").get(0);
        if step % 8 == 7 {
            reading.go_on(&play, 1 + u32::try_from(dice.below(6)).unwrap(), 1).await;
        }
    }
    for (client, _) in &clients {
        client.batch_execute("rollback").await.unwrap();
    }
    assert!(reading.found.len() > 60, "{}", reading.found.len());
    let targets = reading.places.iter().filter(|(_, place)| place.position() > 0).count();
    assert!(targets > 30, "some of the places are in the middle of a target: {targets}");
    for rows_max in [1, 7, 1_000] {
        for _ in 0..40 {
            let (one, other) = (dice.below(reading.places.len()), dice.below(reading.places.len()));
            reading.check(&play, one.min(other), one.max(other), rows_max).await;
        }
        reading.check(&play, 0, reading.places.len() - 1, rows_max).await;
    }
}

/// INV-1: the same where a transaction was open so long that its rows are looked for by its number; and its rows, which
/// have early numbers and came late, lie on the side of each cursor on which they were read.
#[tokio::test]
async fn a_transaction_that_was_open_for_long_lies_where_it_was_read() {
    let Some(play) = Play::new().await else { return };
    let (long, other) = (play.fresh.connect().await, play.fresh.connect().await);
    write(&other, &play, 10).await;
    long.batch_execute("begin").await.unwrap();
    write(&long, &play, 5).await;
    let mut reading = Reading::new();
    for _ in 0..2 {
        write(&other, &play, 10_000).await;
        reading.go_on(&play, 1_000, 400).await;
    }
    let before = reading.places.len() - 1;
    write(&long, &play, 5).await;
    long.batch_execute("commit").await.unwrap();
    write(&other, &play, 5).await;
    reading.go_on(&play, 3, 1).await;
    let late = &reading.found[reading.places[before].0..];
    assert!(late.contains(&11) && late.contains(&15), "they came last: {late:?}");
    let last = reading.places.len() - 1;
    for (from, to) in
        [(0, before), (before, last), (before - 1, last - 2), (before, last - 1), (0, last)]
    {
        reading.check(&play, from, to, 1_000).await;
    }
    reading.check(&play, before - 1, last, 7).await;
    reading.check(&play, before, last - 3, 1).await;
}

/// A drain to a head, which is a snapshot and no more, is the same way.
#[tokio::test]
async fn the_way_to_a_head_ends_at_the_head() {
    let Some(play) = Play::new().await else { return };
    let mut reading = Reading::new();
    play.commit(&["1", "2", "hot"]).await;
    reading.go_on(&play, 2, 1).await;
    play.commit(&["4", "5", "6"]).await;
    let head = play.store.head(&play.lease).await.expect("head");
    play.commit(&["7"]).await;
    for from in 0..reading.places.len() {
        let (first, at) = &reading.places[from];
        let (mut at, mut found) = (at.clone(), Vec::new());
        loop {
            let page = play.page(&at, Some(&head), 2).await;
            found.extend(page.rows.iter().map(|row| row.row.seq));
            at = page.end;
            if !page.more {
                break;
            }
        }
        let expected: Vec<u64> = (1..=6).skip(*first).collect();
        assert_eq!(found, expected, "from {from}");
    }
}

/// A key's rows on the way keep their order, and a page of nothing but other keys' rows is one that goes on.
#[tokio::test]
async fn pages_of_other_keys_lead_on() {
    let Some(play) = Play::new().await else { return };
    let others: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let mut all = vec!["hot"];
    all.extend(others.iter().map(String::as_str));
    all.push("hot");
    play.commit(&all).await;
    let (begins, stands) = play.pass_with_range(0).await;
    let (mut at, mut keys, mut pages) = (begins, Vec::new(), 0);
    loop {
        let page = play.page(&at, Some(&stands), 4).await;
        let events = page.rows.iter().map(|row| row.event.as_ref().expect("an event"));
        keys.extend(events.map(|event| event.key().to_string()).filter(|key| key == KEY));
        (at, pages) = (page.end, pages + 1);
        if !page.more {
            break;
        }
        assert!(pages < 20, "it ends");
    }
    assert_eq!(keys, [KEY, KEY]);
    play.commit(&["hot"]).await;
    let beyond = play.page(&at, Some(&stands), 4).await;
    assert!(beyond.rows.is_empty() && !beyond.more);
}

/// INV-6: behind the last row of an old target lies all that was written since. A page reads so many numbers of that and no
/// more, and what lies behind them is on a later one.
#[tokio::test]
async fn a_page_reads_no_further_than_a_stretch() {
    const STRETCH: u64 = 200_000;
    const APART: u64 = 100_000;
    let Some(play) = Play::new().await else { return };
    let client = play.fresh.connect().await;
    write(&client, &play, 5).await;
    let mut reading = Reading::new();
    reading.go_on(&play, 2, 1).await;
    let in_target = |(_, place): &(usize, Cursor)| (1..5).contains(&place.position());
    let old = reading.places.iter().rposition(in_target).expect("a place in the target");
    for nth in 1..=10 {
        play.fresh.run(&format!("select setval('{{outbox_seq}}', {})", nth * APART)).await;
        write(&client, &play, 1).await;
    }
    reading.go_on(&play, 1_000, 1).await;
    let (last, at) = (reading.places.len() - 1, &reading.places[old].1);
    let (mut at, mut pages) = (at.clone(), 0);
    loop {
        let page = play.page(&at, Some(&reading.places[last].1), 1_000).await;
        // Below its ground lies nothing of a lap: other sessions of the server decide when it begins a lap.
        let lap = SnapshotCursor::decode(&at).expect("a cursor of this store");
        let (from, to) = (lap.position().max(lap.ground()), page.end.position());
        assert!(to <= from + STRETCH + APART, "{from} to {to}: as far as the next row at most");
        pages += 1;
        at = page.end;
        if !page.more {
            break;
        }
    }
    assert!(pages >= 4, "a million numbers with rows among them were read on {pages} pages");
    reading.check(&play, old, last, 1_000).await;
    reading.check(&play, old, last, 1).await;
}

/// R007, INV-8: the sequence leaps over a trillion numbers where a large table is split. A way that leads over such a gap takes a
/// page or two more, and not millions of them; so does the end of one whose target has nothing behind it.
#[tokio::test]
async fn a_gap_of_a_trillion_numbers_is_leapt_over() {
    let Some(play) = Play::new().await else { return };
    let client = play.fresh.connect().await;
    write(&client, &play, 5).await;
    let mut reading = Reading::new();
    reading.go_on(&play, 2, 1).await;
    let in_target = |(_, place): &(usize, Cursor)| (1..5).contains(&place.position());
    let old = reading.places.iter().rposition(in_target).expect("a place in the target");
    let before = reading.places.len() - 1;
    play.fresh.run("select setval('{outbox_seq}', 1::bigint << 40)").await;
    write(&client, &play, 3).await;
    reading.go_on(&play, 1_000, 1).await;
    let last = reading.places.len() - 1;
    for (from, to) in [(0, last), (old, last), (before, last), (0, before)] {
        let (mut at, mut pages) = (reading.places[from].1.clone(), 0);
        loop {
            let page = play.page(&at, Some(&reading.places[to].1), 1_000).await;
            (at, pages) = (page.end, pages + 1);
            if !page.more {
                break;
            }
            assert!(pages < 20, "from {from} to {to} it walks");
        }
        reading.check(&play, from, to, 1_000).await;
    }
}

/// INV-1: where the sequence was set back between the two cursors, what lies between has higher numbers than it has given.
/// That is refused at the latest where it comes to them, and nothing is passed over as if it were not there.
#[tokio::test]
async fn a_way_to_what_the_sequence_has_not_given_is_refused() {
    let Some(play) = Play::new().await else { return };
    let client = play.fresh.connect().await;
    write(&client, &play, 5).await;
    let mut reading = Reading::new();
    reading.go_on(&play, 1_000, 5).await;
    let before = reading.places.len() - 1;
    play.fresh.run("select setval('{outbox_seq}', 2000000)").await;
    write(&client, &play, 5).await;
    reading.go_on(&play, 1_000, 5).await;
    reading.check(&play, before, reading.places.len() - 1, 2).await;
    for given in [600_000, 100_000, 5] {
        play.fresh.run(&format!("select setval('{{outbox_seq}}', {given})")).await;
        let (mut at, until) =
            (reading.places[before].1.clone(), &reading.places[reading.places.len() - 1].1);
        let refused = loop {
            match play.ask(&at, Some(until), 2).await {
                Ok(page) => {
                    assert!(page.more && page.rows.is_empty(), "behind {given}: {page:?}");
                    at = page.end;
                }
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::Rewound, "{refused}");
    }
}
