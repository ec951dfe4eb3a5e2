//! What the flags refuse, and what the inbox forgets.

use rustix::process::Signal;

use crate::endpoint::Endpoint;
use crate::sidecar::{Ended, Sidecar};
use crate::stage::Stage;

/// A command line that ends by itself.
async fn refused(stage: &Stage, args: &[&str]) -> Ended {
    let mut command = stage.command("http://127.0.0.1:9/events", &[]);
    command.args(args);
    command.env("BROKEN", "hunter2\u{1}");
    Sidecar::start(command).ended().await
}

/// A configuration that cannot work starts nothing, and says what would.
#[tokio::test]
async fn wrong_configurations_are_refused() {
    let stage = Stage::new();
    for (args, code, words) in [
        (&["--header", "authorization=env:NOT_SET_HERE"][..], 78, "NOT_SET_HERE is not set"),
        (&["--header", "authorization=env:BROKEN"], 78, "no header's value"),
        (&["--header", "authorization=hunter2"], 78, "comes from the environment"),
        (&["--handler", "no name"], 78, "handler"),
        (&["--retention", "1h"], 78, "acted on again"),
        (&["--result-retention", "36d"], 78, "go with their rows"),
        (&["--concurrency", "0"], 2, "--concurrency"),
        (&["--attempts", "0"], 2, "--attempts"),
        (&["--timeout", "0s"], 2, "longer than nothing"),
        (&["--format", "avro"], 2, "structured"),
    ] {
        let ended = refused(&stage, args).await;
        assert_eq!(ended.code, Some(code), "{args:?}: {}", ended.text);
        assert!(ended.text.contains(words), "{args:?}: {}", ended.text);
        assert!(!ended.text.contains("hunter2") || code == 2, "{}", ended.text);
    }
}

/// An inbox without tables is told as any store without tables.
#[tokio::test]
async fn an_inbox_without_tables_is_refused() {
    let stage = Stage::new();
    let bare = rusqlite::Connection::open(stage.path("bare.db")).unwrap();
    bare.execute_batch("create table mine (id integer)").unwrap();
    let command = stage.command_with("bare.db", "http://127.0.0.1:9/events", &[]);
    let ended = Sidecar::start(command).ended().await;
    assert!(ended.text.contains("PR-1001") && ended.code == Some(1), "{}", ended.text);
}

/// R087: what was done longer ago than the retention is forgotten, in batches; what is younger, and
/// what is not done, stays. That two days are few is said: an endpoint may be away for longer.
#[tokio::test]
async fn the_inbox_forgets_what_is_older_than_the_retention() {
    let stage = Stage::new();
    let inbox = stage.inbox();
    let fill = "
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 2510)
        insert into inbox (source, event_id, handler, event_type, status, payload_hash,
            received_at, expires_at, processed_at)
        select '/shop', printf('00000000-0000-0000-0000-%012d', i), 'billing', 't',
            iif(i <= 5, 'claimed', 'processed'), zeroblob(32), 0,
            iif(i <= 5, (select max(received_at) from inbox), null),
            iif(i <= 5, null, (select max(received_at) from inbox) - iif(i <= 10, 0, 3 * 86400) * :unit)
        from n";
    // The unit of the store's clock, read off a row that it wrote.
    let now: i64 = probe(&stage).await;
    let unit = if now > 100_000_000_000_000 { 1_000_000 } else { 1_000 };
    inbox.execute(fill, [unit]).unwrap();
    let endpoint = Endpoint::willing().await;
    let sidecar = stage.sidecar(&endpoint, &["--retention", "2d"]).await;
    stage.until("the old ones are gone", || stage.number("select count(*) from inbox") <= 11).await;
    let ended = sidecar.stop().await;
    assert!(ended.text.contains("14d or more is safe"), "{}", ended.text);
    assert_eq!(stage.number("select count(*) from inbox where status = 'claimed'"), 5);
    assert_eq!(stage.number("select count(*) from inbox where status = 'processed'"), 6);
}

/// How calls are written stands in the configuration as well, with secrets by reference; a flag takes the place of what
/// it names, and of nothing else. A header that is the sidecar's own is refused with its place.
#[tokio::test]
async fn a_configuration_says_how_calls_are_written() {
    let stage = Stage::new();
    let endpoint = Endpoint::willing().await;
    let configuration = |header: &str| {
        let text = format!(
            "[consume.billing]\nfrom = \"local://queue.db/*\"\ninbox = \"sqlite://billing.db\"\n\
             endpoint = \"{}\"\nformat = \"binary\"\n[consume.billing.headers]\n{header}\n",
            endpoint.url()
        );
        std::fs::write(stage.path("postrider.toml"), text).unwrap();
    };
    let command = |more: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_postrider"));
        command
            .args(["consume", "--config", "postrider.toml", "--once", "--idle", "1s"])
            .args(more);
        command.current_dir(stage.folder.path()).env("TOKEN", "of the flag");
        postrider_testkit::services::variables()
            .iter()
            .for_each(|name| _ = command.env_remove(name));
        command
    };
    std::fs::write(stage.path("token"), "of the file\n").unwrap();
    configuration("authorization = \"file:token\"\nx-who = \"env:TOKEN\"");
    let first = stage.place("one").await;
    assert_eq!(Sidecar::start(command(&[])).ended().await.code, Some(0));
    let second = stage.place("two").await;
    let flags = ["--format", "structured", "--header", "authorization=env:TOKEN"];
    assert_eq!(Sidecar::start(command(&flags)).ended().await.code, Some(0));
    for (id, written, token) in [
        (first, "application/json", "of the file"),
        (second, "application/cloudevents+json", "of the flag"),
    ] {
        let call = endpoint.calls_of(id).remove(0);
        assert!(call.header("content-type").starts_with(written), "{:?}", call.headers);
        assert_eq!((call.header("authorization"), call.header("x-who")), (token, "of the flag"));
    }
    configuration("idempotency-key = \"env:TOKEN\"");
    let refused = Sidecar::start(command(&[])).ended().await;
    assert_eq!(refused.code, Some(78), "{}", refused.text);
    assert!(refused.text.contains("postrider.toml:7:19"), "{}", refused.text);
}

/// Lets one event be done, and returns the time that the store wrote.
async fn probe(stage: &Stage) -> i64 {
    stage.place("probe").await;
    let endpoint = Endpoint::willing().await;
    let sidecar = stage.sidecar(&endpoint, &[]).await;
    stage.settled().await;
    let ended = sidecar.stop().await;
    assert!(!ended.text.contains("--retention"), "{}", ended.text);
    stage.number("select received_at from inbox")
}

/// A token of the endpoint's is rotated: with SIGHUP the calls carry what its file says then, and what is in work is not
/// touched.
#[tokio::test]
async fn a_reload_takes_the_headers_of_calls() {
    let stage = Stage::new();
    let endpoint = Endpoint::willing().await;
    let text = format!(
        "[consume.billing]\nfrom = \"local://queue.db/*\"\ninbox = \"sqlite://billing.db\"\n\
         endpoint = \"{}\"\nheaders = {{ authorization = \"file:token\" }}\n",
        endpoint.url()
    );
    std::fs::write(stage.path("postrider.toml"), text).unwrap();
    std::fs::write(stage.path("token"), "older").unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.args(["consume", "--config", "postrider.toml"]).current_dir(stage.folder.path());
    let variables = postrider_testkit::services::variables();
    variables.iter().for_each(|name| _ = command.env_remove(name));
    let mut sidecar = Sidecar::start(command);
    sidecar.hear("receiving").await;
    let first = stage.place("1").await;
    endpoint.called(1).await;
    // What cannot be a header's value changes nothing.
    std::fs::write(stage.path("token"), "wro\u{1}ng").unwrap();
    sidecar.signal(Signal::HUP);
    sidecar.hear("the reload changed nothing").await;
    std::fs::write(stage.path("token"), "newer").unwrap();
    sidecar.signal(Signal::HUP);
    sidecar.hear("secrets: read anew").await;
    let second = stage.place("1").await;
    stage.settled().await;
    let ended = sidecar.stop().await;
    assert!(!ended.text.contains("newer") && !ended.text.contains("older"), "{}", ended.text);
    for (id, token) in [(first, "older"), (second, "newer")] {
        assert_eq!(endpoint.calls_of(id).remove(0).header("authorization"), token);
    }
}
