//! The configuration file, and variables over it.

use postrider_config::{Config, Environment, Loaded, Loader, Needs, Origin, Problem};

/// The name of the file.
const FILE: &str = "postrider.toml";

/// A file, and behind a zero byte each a variable: it is read, or refused with a place and in words.
pub fn config(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut parts = text.split('\0');
    let file = parts.next().unwrap_or_default();
    let pairs = parts.filter_map(|part| part.split_once('='));
    let environment: Environment = pairs.collect();
    let load = |needs| Loader::new(&environment).text(FILE, file).needs(needs).load();
    for needs in [Needs::NOTHING, Needs::RELAY, Needs::CONSUME] {
        match load(needs) {
            Ok(loaded) => hold(&loaded, file),
            Err(problems) => {
                assert!(!problems.is_empty(), "refused without a word");
                problems.iter().for_each(|problem| told(problem, file));
            }
        }
    }
}

fn hold(loaded: &Loaded, file: &str) {
    loaded.warnings.iter().for_each(|warning| told(warning, file));
    assert!(!loaded.values().is_empty());
    assert!(Config::diff(&loaded.config, &loaded.config).is_empty(), "it differs from itself");
    assert!(!format!("{loaded:?}").is_empty());
}

fn told(problem: &Problem, file: &str) {
    let shown = problem.to_string();
    assert!(!problem.message.is_empty() && !shown.is_empty(), "{problem:?}");
    let is_whole = |line: &str| !line.chars().any(|c| c.is_control() && c != '\t');
    assert!(shown.lines().all(is_whole), "a control character reaches a terminal: {shown:?}");
    if let Origin::File { line, column, .. } = &problem.origin {
        let lines = file.split('\n').count();
        assert!(*line <= lines, "line {line} of {lines}: {shown}");
        assert_eq!(*line == 0, *column == 0, "{shown}");
    }
}
