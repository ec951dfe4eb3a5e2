//! The operator's commands on DynamoDB: what they list, that they count before they ask, and what they do.

use std::process::Output;

use serde_json::Value;

use super::Tables;
use super::partner::Partner;
use crate::{code, err, out, said};

pub(super) const KEY: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

impl Tables {
    /// Runs a command as a person, with the configuration of [`Tables::sends_to`].
    fn operate(&self, args: &[&str]) -> Output {
        let mut command = self.shop.command(args);
        command.env("POSTRIDER_CONFIG", "postrider.toml").env("PARTNER_KEY", KEY);
        command.env("POSTRIDER_USER", "anna@db1").env_remove("COLUMNS").env_remove("NO_COLOR");
        command.args(["--config", "postrider.toml"]).output().unwrap()
    }

    /// What a command says that must succeed, as JSON.
    fn json(&self, args: &[&str]) -> Value {
        let run = self.operate(&[args, &["--output", "json"]].concat());
        assert_eq!(code(&run), 0, "{args:?}: {}", err(&run));
        let text = out(&run);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
    }

    fn sends_to(&self, port: u16) {
        self.shop.configure(&format!(
            "store = \"{}\"\n[dynamodb]\nstream = false\nbackstop = \"1s\"\n\
             [destinations.partner]\nkind = \"webhook\"\n\
             [[destinations.partner.routes]]\ntopic = \"acme\"\nformat = \"structured\"\n\
             [destinations.partner.webhook]\nallow_private = true\n\
             [destinations.partner.endpoints.acme]\nurl = \"http://127.0.0.1:{port}/in\"\n\
             keys = [\"env:PARTNER_KEY\"]\n",
            self.url()
        ));
    }

    /// Sends what there is, and carries out what was asked for.
    fn carry(&self) -> Output {
        self.operate(&["relay", "--once"])
    }

    /// The ids of a list.
    fn ids(&self, args: &[&str]) -> Vec<String> {
        let list = self.json(args);
        let rows = list["rows"].as_array().unwrap().iter();
        rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    }

    /// What became of an event, in words.
    fn shown(&self, id: &str) -> String {
        let run = self.operate(&["outbox", "show", id]);
        assert_eq!(code(&run), 0, "{}", err(&run));
        out(&run)
    }
}

/// R063, R093, R095, R096, R098: dead letters are listed with their reasons and shown; a redrive, a discard, and a requeue count
/// first and ask, do what was counted when a relay comes, and stand in the audit log.
#[test]
fn dead_letters_are_listed_redriven_and_discarded() {
    let Some(tables) = Tables::new("dead_letters_are_listed_redriven_and_discarded") else {
        return;
    };
    let (partner, port) = Partner::listen();
    tables.sends_to(port);
    tables.place(&["1", "2", "3"]);
    let refused = tables.carry();
    assert_eq!(code(&refused), 3, "it waits for a person: {}", err(&refused));
    let dead = tables.ids(&["dead", "ls"]);
    assert_eq!(dead.len(), 3);
    assert_eq!(tables.ids(&["dead", "ls", "--key", "order/2"]).len(), 1);
    let row = &tables.json(&["dead", "ls", "--id", &dead[0]])["rows"][0];
    assert_eq!((&row["attempts"], &row["reason"]), (&1.into(), &"rejected".into()), "{row}");
    assert!(row["detail"].as_str().unwrap().contains("422"), "{row}");
    assert_eq!(tables.json(&["dead", "show", &dead[0]])["payload"], 1250);
    assert_eq!(tables.ids(&["outbox", "ls"]).len(), 3);

    let counted = tables.operate(&["dead", "redrive", "--all", "--dry-run"]);
    assert_eq!(out(&counted).trim(), "3", "{}", err(&counted));
    let unasked = tables.operate(&["dead", "redrive", "--all"]);
    assert_eq!(code(&unasked), 2, "nobody is there to ask: {}", err(&unasked));
    assert!(said(&unasked).contains("--yes"), "{}", err(&unasked));
    assert_eq!(code(&tables.carry()), 3);
    assert_eq!(tables.ids(&["dead", "ls"]), dead, "and nothing was done");

    partner.take();
    let redriven = tables.operate(&["dead", "redrive", &dead[0], "--yes", "--wait", "0"]);
    assert_eq!(code(&redriven), 0, "{}", err(&redriven));
    assert!(said(&redriven).contains("request 1 is written down"), "{}", err(&redriven));
    let discard = ["dead", "discard", &*dead[1], "--yes", "--wait", "0"];
    assert_eq!(code(&tables.operate(&discard)), 2, "a discard needs a reason");
    let discarded = tables.operate(&[&discard[..], &["--reason", "a test order"]].concat());
    assert_eq!(code(&discarded), 0, "{}", err(&discarded));
    assert_eq!(code(&tables.carry()), 3, "one is left");
    assert_eq!(tables.ids(&["dead", "ls"]), dead[2..]);
    let took = partner.took();
    let id = |body: &str| serde_json::from_str::<Value>(body).unwrap()["id"].clone();
    assert_eq!(took.iter().map(|body| id(body)).collect::<Vec<_>>(), [dead[0].as_str()]);
    assert!(tables.shown(&dead[0]).contains("published"), "{}", tables.shown(&dead[0]));
    assert!(tables.shown(&dead[1]).contains("discarded"), "{}", tables.shown(&dead[1]));

    let again = ["outbox", "requeue", &*dead[0], "--yes", "--wait", "0", "--reason", "it was lost"];
    let requeued = tables.operate(&again);
    assert_eq!(code(&requeued), 0, "{}", err(&requeued));
    tables.carry();
    let took = partner.took();
    assert_eq!((took.len(), id(&took[1])), (2, dead[0].as_str().into()), "the same id again");
    assert!(took[1].contains("postriderlate"), "it says that it is late: {}", took[1]);
    let audit = out(&tables.operate(&["audit"]));
    for part in ["anna@db1", "dead redrive", "dead discard", "a test order", "it was lost"] {
        assert!(audit.contains(part), "{part}: {audit}");
    }
}

/// R106, R097: the inbox is listed and shown; what a person did by hand is recorded; a forgetting needs a reason, asks, and
/// leaves a tombstone.
#[test]
fn the_inbox_is_listed_and_corrected_by_hand() {
    let Some(tables) = Tables::new("the_inbox_is_listed_and_corrected_by_hand") else { return };
    tables.sends_to(1);
    let event = "01941f29-7c00-7000-8000-000000000001";
    let row = [event, "--handler", "mail", "--source", "/shop"];
    let mark = [&["inbox", "mark-processed"], &row[..], &["--reason", "sent by hand"]].concat();
    let marked = tables.operate(&mark);
    assert_eq!(code(&marked), 0, "{}", err(&marked));
    let list = tables.json(&["inbox", "ls", "--handler", "mail"]);
    let first = &list["rows"][0];
    assert_eq!((&first["event_id"], &first["state"]), (&event.into(), &"processed".into()));
    let again = tables.operate(&mark);
    assert!(said(&again).contains("done already"), "{}", err(&again));
    let shown = out(&tables.operate(&["inbox", "show", event]));
    assert!(shown.contains("mail") && shown.contains("processed"), "{shown}");
    let forget = [&["inbox", "forget"], &row[..]].concat();
    assert_eq!(code(&tables.operate(&[&forget[..], &["--yes"]].concat())), 2, "without a reason");
    let forget = [&forget[..], &["--reason", "the mail bounced"]].concat();
    let unasked = tables.operate(&forget);
    assert_eq!(code(&unasked), 2, "nobody is there to ask: {}", err(&unasked));
    assert_eq!(tables.json(&["inbox", "ls", "--state", "processed"])["rows"][0], *first);
    let forgotten = tables.operate(&[&forget[..], &["--yes"]].concat());
    assert_eq!(code(&forgotten), 0, "{}", err(&forgotten));
    let stones = tables.json(&["inbox", "ls", "--state", "forgotten"]);
    assert!(stones["rows"][0]["forgotten_by"].as_str().unwrap().contains("anna@db1"), "{stones}");
    assert!(out(&tables.operate(&["audit"])).contains("the mail bounced"));
}
