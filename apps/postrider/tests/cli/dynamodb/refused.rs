//! A service that refuses the program: what a person is told, and that nothing is lost by it.

use serde_json::json;

use super::{Tables, server};
use crate::{code, err, out, said};

/// A service that answers everything with this code; its address. What is denied is named by what was asked for.
fn refusing(kind: &'static str) -> String {
    let port = server::listen(move |head, _| {
        let target = server::field(head, "x-amz-target").unwrap_or_default();
        let action = target.rsplit('.').next().unwrap_or_default();
        let text = format!(
            "User: arn:aws:sts::1:assumed-role/shop is not authorized to perform: dynamodb:{action} on resource: x"
        );
        let error = format!("com.amazonaws.dynamodb.v20120810#{kind}");
        ("400 Bad Request", json!({"__type": error, "message": text}).to_string())
    });
    format!("http://127.0.0.1:{port}")
}

/// A region or a table that is not there, an action that is denied, and credentials that expired: every command
/// ends, says which it is and what to do, and what was committed is delivered when that is mended.
#[test]
fn each_refusal_is_told_with_what_to_do_and_loses_nothing() {
    let Some(tables) = Tables::new("each_refusal_is_told_with_what_to_do") else { return };
    tables.place(&["1", "2"]);
    for (kind, words) in [
        ("ResourceNotFoundException", &["no such table in this region", "postrider init"][..]),
        ("AccessDeniedException", &["the permission dynamodb:", "is missing", "nothing was lost"]),
        ("ExpiredTokenException", &["credentials have expired", "nothing was lost"]),
        ("UnrecognizedClientException", &["credentials are not accepted"]),
    ] {
        let store = format!("dynamodb://?prefix={}&endpoint={}", tables.prefix, refusing(kind));
        for args in [
            &["relay", "--store", &*store, "--to", "stdout", "--once"][..],
            &["status", "--store", &*store],
            &["doctor", "--store", &*store],
            &["dead", "ls", "--store", &*store],
        ] {
            let ended = tables.shop.run(args);
            assert_ne!(code(&ended), 0, "{kind} {args:?}");
            let told = format!("{} {}", said(&ended), out(&ended));
            let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
            for words in words {
                assert!(told.contains(words), "{kind} {args:?}: {words}: {told}");
            }
        }
    }
    let relay = tables.run(&["relay", "--store", &tables.url(), "--to", "stdout", "--once"]);
    assert_eq!((code(&relay), out(&relay).lines().count()), (0, 2), "{}", err(&relay));
}

/// Whoever makes tables and may not is told what that takes, and not what a relay does meanwhile.
#[test]
fn init_without_rights_says_what_making_takes() {
    let Some(tables) = Tables::bare("init_without_rights_says_what_making_takes") else { return };
    let store = format!(
        "dynamodb://?prefix={}&endpoint={}",
        tables.prefix,
        refusing("AccessDeniedException")
    );
    let refused = tables.shop.run(&["init", &store]);
    assert_eq!(code(&refused), 1, "{}", err(&refused));
    let told = said(&refused);
    for words in ["dynamodb:CreateTable", "postrider init --print", "what was made stays"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(!told.contains("relay"), "{told}");
}
