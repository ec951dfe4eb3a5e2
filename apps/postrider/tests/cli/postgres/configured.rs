//! What the configuration says of PostgreSQL.

use super::Database;
use crate::{code, err, events, out, said};

fn write(database: &Database, name: &str, text: &str) {
    std::fs::write(database.shop.path(name), text).unwrap();
}

/// F31: a pooler and a standby are said in the configuration, and what is wrong with that is refused before
/// anything connects, with file, line, and a suggestion.
#[test]
fn a_pooler_is_configured_and_checked_before_connecting() {
    let Some(database) = Database::new("a_pooler_is_configured") else { return };
    database.place(2, 2);
    let place = format!("store = \"{}\"\n[postgres]\n", database.url());
    let run = |text: &str| {
        write(&database, "p.toml", &format!("{place}{text}\n"));
        let relay = ["relay", "--config", "p.toml", "--to", "stdout", "--once"];
        database.shop.command(&relay).output().unwrap()
    };
    let refused = run("pooler = \"pgbouncer\"");
    assert_eq!(code(&refused), 78, "{}", err(&refused));
    assert!(err(&refused).contains("p.toml:3:10"), "{}", err(&refused));
    assert!(said(&refused).contains("auto, none, session, transaction"), "{}", err(&refused));
    let refused = run("publish_after = \"standby:\"");
    assert_eq!(code(&refused), 78, "{}", err(&refused));
    assert!(said(&refused).contains("application_name"), "{}", err(&refused));
    write(
        &database,
        "s.toml",
        "store = \"sqlite://shop.db\"\n[postgres]\npublish_after = \"standby:b\"\n",
    );
    let relay = ["relay", "--config", "s.toml", "--to", "stdout", "--once"];
    let refused = database.shop.command(&relay).output().unwrap();
    assert_eq!(code(&refused), 78, "{}", err(&refused));
    assert!(said(&refused).contains("is about PostgreSQL"), "{}", err(&refused));
    // A flag in place of the configured store is looked at as well.
    write(&database, "f.toml", "[postgres]\npooler = \"none\"\n");
    let relay = ["relay", "--config", "f.toml", "--store", "sqlite://shop.db", "--to", "stdout"];
    let refused = database.shop.command(&relay).output().unwrap();
    assert_eq!(code(&refused), 78, "{}", err(&refused));
    assert!(said(&refused).contains("is about PostgreSQL"), "{}", err(&refused));

    let relayed = run("pooler = \"transaction\"");
    assert_eq!(code(&relayed), 0, "{}", err(&relayed));
    assert_eq!(events(&out(&relayed)).len(), 4);
}

/// INV-2: while the standby that must have an event is not there, nothing is published.
#[test]
fn nothing_is_published_that_an_absent_standby_lacks() {
    let Some(database) = Database::new("an_absent_standby") else { return };
    database.place(2, 2);
    let place = format!("store = \"{}\"\n", database.url());
    write(
        &database,
        "p.toml",
        &format!("{place}[postgres]\npublish_after = \"standby:no_such\"\n"),
    );
    let relay = ["relay", "--config", "p.toml", "--to", "stdout", "--once", "--timeout", "5s"];
    let stalled = database.shop.command(&relay).output().unwrap();
    assert_ne!(code(&stalled), 0, "{}", err(&stalled));
    assert_eq!(events(&out(&stalled)).len(), 0, "{}", out(&stalled));
    write(&database, "p.toml", &format!("{place}[postgres]\npublish_after = \"local\"\n"));
    let relayed = database.shop.command(&relay).output().unwrap();
    assert_eq!(code(&relayed), 0, "{}", err(&relayed));
    assert_eq!(events(&out(&relayed)).len(), 4);
}

/// R121: the doctor compares how long the configured inbox remembers with the longest time that a consumer
/// recorded, and fails where it is less.
#[test]
fn doctor_compares_retention_with_the_recorded_horizon() {
    let Some(database) = Database::new("doctor_compares_retention") else { return };
    let url = database.url();
    let text = format!(
        "store = \"{url}\"\n[retention]\ninbox = \"20d\"\n[consume.billing]\n\
         from = \"local://queue.db/order.*\"\ninbox = \"{url}\"\n\
         endpoint = \"http://127.0.0.1:9/events\"\n"
    );
    write(&database, "p.toml", &text);
    let find = || {
        let doctor = ["doctor", "--config", "p.toml", "--output", "ndjson"];
        let run = database.shop.command(&doctor).output().unwrap();
        let said = out(&run);
        let found = said.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut found = found.filter(|finding: &serde_json::Value| {
            finding["subject"] == "inbox of consumer `billing`"
        });
        (code(&run), found.next().unwrap_or_else(|| panic!("{said}{}", err(&run))))
    };
    assert_eq!(find().1["level"], "good");
    let horizon = |set: &str| {
        database.sql(&set.replace("TABLE", &format!("\"{}\".inbox_horizon", database.schema)))
    };
    horizon("insert into TABLE (handler, horizon) values ('mail', '30 days')");
    let (code, short) = find();
    let critical = (6, "critical", "PR-1711");
    let told = (code, short["level"].as_str().unwrap(), short["code"].as_str().unwrap());
    assert_eq!(told, critical, "{short}");
    assert!(short["message"].as_str().unwrap().contains("`mail` may come again for 30d"));
    horizon("update TABLE set horizon = '20 days'");
    assert_eq!(find().1["level"], "good");
}

/// An address in a file is read again for each connection.
#[test]
fn an_address_in_a_file_may_change() {
    let Some(database) = Database::new("an_address_in_a_file") else { return };
    database.place(1, 2);
    write(&database, "url", &database.url());
    let path = database.shop.path("url");
    write(&database, "p.toml", &format!("store = \"file:{}\"\n", path.display()));
    let relay = ["relay", "--config", "p.toml", "--to", "stdout", "--once"];
    let relayed = database.shop.command(&relay).output().unwrap();
    assert_eq!(code(&relayed), 0, "{}", err(&relayed));
    assert_eq!(events(&out(&relayed)).len(), 2);
}
