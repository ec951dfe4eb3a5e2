//! The guide's example for receivers in Python, run as it stands there.

use std::process::Command;

use postrider_webhook::sign;

use crate::support::*;

/// The table of settings says what the code says.
#[test]
fn the_guides_defaults_are_the_codes() {
    let page = include_str!("../../../docs/guide/webhooks.md");
    let settings = postrider_webhook::WebhookSettings::default();
    let kibi = |bytes: usize| match bytes / 1_024 {
        kibi if kibi >= 1_024 => format!("{} MiB", kibi / 1_024),
        kibi => format!("{kibi} KiB"),
    };
    for (name, default) in [
        ("deadline", format!("{} s", settings.deadline.as_secs())),
        ("connections", settings.connections.to_string()),
        ("connections_per_endpoint", settings.connections_per_endpoint.to_string()),
        ("idle", format!("{} s", settings.idle.as_secs())),
        ("answer_bytes_max", kibi(settings.answer_bytes_max)),
        ("request_bytes_max", kibi(settings.request_bytes_max)),
    ] {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        // In the file it may be another one, which is said behind it.
        let said = row.and_then(|row| row.split('|').nth(3)).map(str::trim).unwrap_or_default();
        assert_eq!(said.split(';').next(), Some(&*default), "{name}");
    }
    assert!(settings.urls.is_none() && !settings.allow_private && settings.allow_http.is_none());
}

/// The first block of a language in the guide.
fn block(language: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/webhooks.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_python_receiver_verifies_what_is_signed_and_nothing_else() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: python3 is not installed");
        return;
    }
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let (id, body) = ("0194d5e0-0000-7000-8000-000000000000", "{\"a\": 1}");
    let other: postrider_webhook::SigningKey =
        "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".parse().unwrap();
    let signature = sign(&[other, key()], id, now, body.as_bytes());
    let old = sign(&[key()], id, now - 600, body.as_bytes());
    let judge = format!(
        r#"
def accepted(time, signature, body, secrets):
    headers = {{"webhook-id": "{id}", "webhook-timestamp": str(time), "webhook-signature": signature}}
    try:
        verify(headers, body, secrets)
        return True
    except ValueError:
        return False

secrets = ["{SECRET}"]
assert accepted({now}, "{signature}", b'{body}', secrets)
assert accepted({now}, "{signature}", b'{body}', ["whsec_AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB"] + secrets)
assert not accepted({now}, "{signature}", b'{body} ', secrets)
assert not accepted({now}, "{signature}", b'{body}', ["whsec_AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB"])
assert not accepted({now} - 600, "{old}", b'{body}', secrets)
assert not accepted({now} + 1, "{signature}", b'{body}', secrets)
assert not accepted("x", "{signature}", b'{body}', secrets)
print("verified")
"#
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("receiver.py");
    std::fs::write(&path, block("python") + &judge).unwrap();
    let ran = Command::new("python3").arg(&path).output().unwrap();
    let (out, errors) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert_eq!(out.trim(), "verified", "{errors}");
}
