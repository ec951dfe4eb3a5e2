//! How fast pages are read, beside a plain read of the same rows. Run by hand:
//! `cargo test --release -p postrider-sqlite -- --ignored --nocapture pages_are_read_fast`.

use std::time::Instant;

use crate::support::{Fresh, event, fetch};

#[tokio::test]
#[ignore = "a measurement, not a check"]
async fn pages_are_read_fast() {
    let fresh = Fresh::new();
    let events: Vec<_> = (0..100_000).map(event).collect();
    let start = Instant::now();
    for chunk in events.chunks(1_000) {
        fresh.commit(chunk);
    }
    println!("enqueue: {:.0} rows/s", 100_000.0 / start.elapsed().as_secs_f64());
    let connection = fresh.connect();
    let start = Instant::now();
    let mut statement = connection.prepare("select * from outbox order by seq").unwrap();
    let mut rows = statement.query(()).unwrap();
    let mut bytes = 0;
    while let Some(row) = rows.next().unwrap() {
        for column in [1, 3, 4, 6, 8, 10, 12, 15, 16] {
            bytes += row.get::<_, String>(column).unwrap().len();
        }
    }
    println!("plain read: {:.0} rows/s, {bytes} bytes", 1e5 / start.elapsed().as_secs_f64());
    let (store, lease) = fresh.relay().await;
    let start = Instant::now();
    let mut after = 0;
    loop {
        let page = fetch(&store, &lease, after).await;
        after = page.end.position();
        if !page.more {
            break;
        }
    }
    println!("pages: {:.0} rows/s", 1e5 / start.elapsed().as_secs_f64());
}
