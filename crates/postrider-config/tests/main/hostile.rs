//! Any text at all: it is read or refused, quickly, without a panic and without showing secrets.

use postrider_config::{Environment, Loader};
use proptest::prelude::*;

use crate::{EXAMPLE, load_with, said};

/// Reads a text and looks at everything that can be shown.
fn read(text: &str, environment: &Environment) -> String {
    match Loader::new(environment).text("postrider.toml", text).load() {
        Ok(loaded) => {
            let resolved = loaded.resolve(environment);
            format!("{loaded:?}{:?}{:?}{resolved:?}", loaded.values(), loaded.warnings)
        }
        Err(problems) => said(&problems),
    }
}

/// Pieces of configurations, whole and broken.
fn piece() -> impl Strategy<Value = String> {
    let lines: Vec<String> = EXAMPLE.lines().map(str::to_owned).collect();
    let noise =
        ["[", "]", "{", "}", "=", "\"", "'''", "\"\"\"", ",", ".", "\n", "#", "\\", "é", "\0"];
    let values = ["5", "-1", "1e9", "true", "\"15s\"", "[1, {}]", "{ a = 1 }", "1979-05-27", "nan"];
    prop_oneof![
        4 => proptest::sample::select(lines.clone()),
        1 => proptest::sample::select(noise.to_vec()).prop_map(str::to_owned),
        2 => (proptest::sample::select(lines), proptest::sample::select(values.to_vec())).prop_map(
            |(line, value)| {
                let name = line.split('=').next().unwrap_or_default();
                format!("{name} = {value}")
            }
        ),
        1 => "\\PC{0,20}",
    ]
}

/// A line that holds the secret where a secret, or an unknown key, stands.
fn with_secret() -> impl Strategy<Value = String> {
    let keys = ["token", "keys", "headers.x-api-key", "url", "store", "tokn", "key", "acme.keys"];
    let values = [
        "\"hunter2\"",
        "hunter2",
        "\"hunter2",
        "[\"env:A\", \"hunter2\"]",
        "[\"env:A\" \"hunter2\"]",
        "\"https://u:hunter2@h/\"",
        "\"https://h/hunter2\"",
        "\"x://h?token=hunter2\"",
        "{ a = \"hunter2\" }",
        "\"env:hunter2 x\"",
        "\"file:\\nhunter2\"",
    ];
    (proptest::sample::select(keys.to_vec()), proptest::sample::select(values.to_vec()))
        .prop_map(|(key, value)| format!("{key} = {value}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_is_read_or_refused(text in "\\PC{0,200}") {
        read(&text, &Environment::default());
    }

    #[test]
    fn broken_configurations_are_read_or_refused(
        pieces in proptest::collection::vec(piece(), 0..30),
    ) {
        let shown = read(&pieces.join("\n"), &Environment::default());
        let control = |c: char| c.is_control() && c != '\n';
        prop_assert!(!shown.contains(control), "{shown:?}");
    }

    #[test]
    fn arbitrary_variables_are_taken_or_refused(
        names in proptest::collection::vec("[A-Za-z0-9_]{0,12}|RELAY|DESTINATIONS|ROUTES|0|KIND|A", 1..5),
        value in "\\PC{0,30}|\\[.*|\\{.*|stdout",
    ) {
        let environment: Environment =
            [(format!("POSTRIDER_{}", names.join("__")), value)].into_iter().collect();
        read(EXAMPLE, &environment);
    }

    /// R107: no secret that stands in the file is shown, however broken the file is.
    #[test]
    fn secrets_in_the_file_are_not_shown(
        before in proptest::collection::vec(piece(), 0..6),
        table in proptest::sample::select(vec!["", "[observe]", "[destinations.partners.endpoints.x]"]),
        secret in with_secret(),
        after in proptest::collection::vec(piece(), 0..6),
    ) {
        let text = format!("{}\n{table}\n{secret}\n{}\n", before.join("\n"), after.join("\n"));
        let shown = read(&text, &Environment::default());
        prop_assert!(!shown.contains("hunter2"), "{text}\n---\n{shown}");
    }
}

#[test]
fn depth_and_number_are_bounded() {
    let nested = format!("a = {}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let dotted = format!("{}b = 1", "a.".repeat(100_000));
    let mixed = format!("{}1{}", "a.a.a.a = {".repeat(70), "}".repeat(70));
    for text in [nested, dotted, mixed] {
        assert!(load_with(&text, &[]).is_err());
    }
    let many: String = (0..60_000).map(|n| format!("k{n} = 1\n")).collect();
    let problems = load_with(&many, &[]).unwrap_err();
    assert_eq!(problems.len(), 101);
    assert!(said(&problems).contains("and 59900 more problems"));
}

/// Negative control: the property would see a secret that is shown.
#[test]
fn a_value_that_is_no_secret_is_shown() {
    assert!(read("[relay]\nlease = \"hunter2\"\n", &Environment::default()).contains("hunter2"));
}
